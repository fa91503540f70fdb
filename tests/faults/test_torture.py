"""The torture itself: a short run has its figures, its checkers find what is lost, doubled, changed or left behind."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from tests.soak import leaks, mix
from tests.soak.witness import Witness

Rows = list[dict[str, Any]]


@pytest.mark.usefixtures("forked_runs")
def test_a_short_run_throws_something_and_finds_nothing(tmp_path: Path) -> None:
    arguments = ("--minutes", "0.01", "--seconds", "3", "--seed", "5", "--gap", "0.3", "--pipeline", "fraud_chain")
    assert main(["torture", *arguments, "--json", str(tmp_path / "report.json"), "--keep", str(tmp_path / "kept")]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["jobs"] == {"fraud_chain": 1} and report["rows_checked"] > 0
    assert report["kills"]["all"] + sum(report["faults"].values()) > 0
    assert report["violations"] == {} and report["leaks"] == [] and not report["failed"]
    assert "1 jobs" in report["summary"] and not (tmp_path / "kept").exists()


def story(elements: int) -> Rows:
    """Return what the sinks of the mixed pipeline hold after a run without chance, one key after the other."""
    due = [f"{name}-{p}-{i}" for name, count in mix.SOURCES.items() for p in range(count) for i in range(elements)]
    events = [{"what": "merged", "n": n, "id": each} for n, each in enumerate(due, 1)]
    events.append({"what": "window", "ns": [each["n"] for each in events]})
    rows: Rows = []
    for joined, each in enumerate(events, 1):
        content = {"key": 0, "joined": joined, "event": each}
        rows.append({**content, "hash": mix.chained(rows[-1]["hash"] if rows else "", content)})
    return rows


def written(directory: Path, rows: Rows, filed: Rows) -> Path:
    database = directory / "out.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE output(task TEXT, position INTEGER, record TEXT)")
        connection.executemany(
            "INSERT INTO output VALUES('out/0', ?, ?)", ((at, json.dumps(row)) for at, row in enumerate(rows))
        )
    (directory / "lines").mkdir()
    (directory / "lines" / "lines-0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in filed))
    return database


DAMAGES: dict[str, tuple[Callable[[Rows], tuple[Rows, Rows]], str]] = {
    "a row too few in both": (lambda rows: (rows[1:], rows[1:]), "lost"),
    "a row twice": (lambda rows: ([rows[0], *rows], [rows[0], *rows]), "doubled"),
    "a row that says something else": (
        lambda rows: ([{**rows[0], "dice": 1}, *rows[1:]], [{**rows[0], "dice": 1}, *rows[1:]]),
        "contradicted",
    ),
    "outputs that differ": (lambda rows: (rows, rows[:-1]), "contradicted"),
    "a window that misses a row": (lambda rows: (rows[:-1], rows[:-1]), "contradicted"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_the_checker_finds(tmp_path: Path, name: str) -> None:
    damage, kind = DAMAGES[name]
    rows, filed = damage(story(3))
    counts = mix.check(written(tmp_path, rows, filed), tmp_path / "lines", 3)
    assert counts[kind] > 0, counts


def test_the_checker_finds_nothing_in_a_sound_output(tmp_path: Path) -> None:
    rows = story(3)
    counts = mix.check(written(tmp_path, rows, rows), tmp_path / "lines", 3)
    assert counts == {"rows": 2 * len(rows), "lost": 0, "doubled": 0, "contradicted": 0}


def test_a_witness_remembers_what_was_visible(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    witness = Witness(path)
    witness.look()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE causal_task(task TEXT)")
        connection.execute("CREATE TABLE output(task TEXT, position INTEGER, record TEXT)")
        connection.execute("INSERT INTO causal_task VALUES('out/0')")
        connection.executemany("INSERT INTO output VALUES('out/0', ?, ?)", [(0, "a"), (1, "b"), (2, "c")])
    witness.look()
    assert witness.contradicted() == 0
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE output SET record = 'other' WHERE position = 1")
        connection.execute("DELETE FROM output WHERE position = 2")
        connection.execute("INSERT INTO output VALUES('out/0', 3, 'd')")
    assert witness.contradicted() == 2


def test_what_is_left_behind_is_named(tmp_path: Path) -> None:
    state, runtime, shared = tmp_path / "job", tmp_path / "runtime", tmp_path / "shared"
    assert leaks.after(state, [runtime], [shared]) == []
    (state / "spill" / "a" / "0-1").mkdir(parents=True)
    (state / "spill" / "a" / "0-1" / "00000001.seg").touch()
    (state / "checkpoints" / "a" / "0").mkdir(parents=True)
    for epoch in (3, 4, 5):
        (state / "checkpoints" / "a" / "0" / f"e{epoch:08d}-i1.snap").touch()
    named = {"epoch": 5, "files": {"a/0": [["checkpoints/a/0/e00000004-i1.snap", 0, ""]]}}
    (state / "checkpoints" / "manifest-5.json").write_text(json.dumps(named))
    runtime.mkdir()
    shared.touch()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(runtime / "w1"))
        left = leaks.after(state, [runtime], [shared])
    assert [each.split()[0] for each in left] == ["the", "socket", "spilled", "snapshot", "shared"]
    assert "e00000003" in left[3]
