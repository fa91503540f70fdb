"""A table in a store by key is what its revisions amount to, whatever dies, is withdrawn, or is rolled back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job, causal_output
from tests.members import campaign

Table = dict[str, Any]
Read = Callable[[Path], Table]


def table_in(directory: Path) -> Table:
    with closing(sqlite3.connect(directory / "out.db")) as db:
        return {key: json.loads(record) for key, record in db.execute("SELECT key, record FROM output")}


def amount(directory: Path) -> Table:
    """Return what the revisions in the files amount to."""
    table: Table = {}
    for line in (directory / "log" / "log-0.jsonl").read_text().splitlines():
        key, old, new = json.loads(line)
        assert table.get(json.dumps(key)) == old
        table[json.dumps(key)] = new
    return {key: row for key, row in table.items() if row is not None}


def check(directory: Path, count: int, read: Read = table_in) -> None:
    table = read(directory)
    assert table == amount(directory)
    assert len(table) > 15 and all(row["i"] // 31 == (count - 1 - int(key)) // 31 for key, row in table.items())


def begun(start: Start, directory: Path, *arguments: str, count: int = 2000, interval: str = "0.2") -> Job:
    settings = sets(gate=directory / "gate", count=count)
    return start(PIPELINES / "tabled.py", *settings, "--checkpoint-interval", interval, *arguments)


def stopped(job: Job) -> str:
    """Stop the job with a savepoint, and return its name."""
    causal_output(job.directory, "savepoint", "--stop", "--state-dir", str(job.state))
    job.finish_well()
    listed = json.loads(causal_output(job.directory, "savepoint", "--list", "--json", "--state-dir", str(job.state)))
    return str(listed[-1]["name"])


GUARANTEES = [[], campaign(["--guarantee", "epoch"], id="epoch"), campaign(["--processes", "stages"], id="cells")]


@pytest.mark.parametrize("options", GUARANTEES)
def test_a_table_is_exact_through_kills(start: Start, tmp_path: Path, options: list[str]) -> None:
    a_table_is_exact_through_kills(start, tmp_path, *options, "--set", "width=2")


def a_table_is_exact_through_kills(start: Start, directory: Path, *options: str, read: Read = table_in) -> None:
    job = begun(start, directory, *options)
    job.until_written(400)
    for tasks in (("out/0",), ("revisions/0", "out/0"), ("dice/0",)):
        if "stages" not in options:
            job.replace(*tasks)
        job.until_warm(checkpoints=0)
    (directory / "gate").touch()
    assert job.finish_well()["withdrawn"] == 0
    check(directory, 2000, read)


def test_sessions_are_exact_through_kills(start: Start, tmp_path: Path) -> None:
    """Sessions grow and join while tasks die; each record is in one, and those of a key are disjoint."""
    job = begun(start, tmp_path, *sets(of="sessions", width=2))
    job.until_written(400)
    for tasks in (("out/0",), ("revisions/0", "out/1"), ("dice/0",)):
        job.replace(*tasks)
        job.until_warm(checkpoints=0)
    (tmp_path / "gate").touch()
    assert job.finish_well()["withdrawn"] == 0
    table = table_in(tmp_path)
    assert table == amount(tmp_path) and sum(table.values()) == 2000
    sessions = sorted(json.loads(key) for key in table)
    assert len(sessions) > 31, "some keys have several"
    for (key, _, end), (other, start_, _) in pairwise(sessions):
        assert key < other or end <= start_


def test_revisions_beyond_the_sharing_depth_are_withdrawn(start: Start, tmp_path: Path) -> None:
    revisions_are_withdrawn(start, tmp_path)


def revisions_are_withdrawn(start: Start, directory: Path, *options: str, read: Read = table_in) -> None:
    """The dice and the table die, which held the thrown numbers: rows in the store depend on them."""
    job = begun(start, directory, "--sharing-depth", "1", *options, interval="600")
    job.until_written(600)
    job.replace("dice/0", "revisions/0")
    (directory / "gate").touch()
    assert job.finish_well()["withdrawn"] > 0
    check(directory, 2000, read)


def test_a_table_returns_to_a_savepoint(start: Start, tmp_path: Path) -> None:
    a_table_returns_to_a_savepoint(start, tmp_path)


def a_table_returns_to_a_savepoint(start: Start, directory: Path, *options: str, read: Read = table_in) -> None:
    """Checkpoints follow the savepoint, and the number of sink tasks changes, so that keys move from task to task."""
    job = begun(start, directory, *options, count=1_000_000)
    job.until_written(600)
    savepoint = stopped(job)
    before = read(directory)
    assert before == amount(directory)
    for width in ("3", "2"):
        job.start("--resume", "--set", f"width={width}")
        job.until_warm(records=300, checkpoints=2)
        stopped(job)
    assert read(directory) != before
    job.start("--resume", "--rollback", savepoint, *sets(width=1, count=4000, rate=100_000))
    (directory / "gate").touch()
    job.finish_well()
    check(directory, 4000, read)


def test_a_table_of_a_running_job_is_rolled_back(start: Start, tmp_path: Path) -> None:
    """Rows of fewer revisions than the store keeps are withdrawn, also where keys have moved to another task."""
    job = begun(start, tmp_path, "--set", "undo_rows=5000", count=3000)
    job.until_written(600)
    causal_output(tmp_path, "rescale", "out=2", "--state-dir", str(job.state))
    job.until_written(900)
    assert "is rolled back to savepoint" in causal_output(tmp_path, "rollback", "--state-dir", str(job.state))
    (tmp_path / "gate").touch()
    job.finish_well()
    check(tmp_path, 3000)


def test_a_return_for_which_rows_are_not_kept_is_refused(start: Start, tmp_path: Path) -> None:
    job = begun(start, tmp_path, "--set", "undo_rows=0", count=1_000_000)
    job.until_written(300)
    savepoint = stopped(job)
    job.start("--resume")
    job.until_warm(records=300, checkpoints=2)
    stopped(job)
    before = table_in(tmp_path)
    status, said = job.start("--resume", "--rollback", savepoint).finish()
    assert status == 2 and "the store of out/0 keeps overwritten rows only from revision" in said, said
    assert table_in(tmp_path) == before
