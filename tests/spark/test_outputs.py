"""Spark reads what sinks wrote, each row once: while it is written, tasks are killed, and Spark is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from tests.spark.conftest import ROOT, eventually

pytestmark = pytest.mark.spark
COUNT = 600
WAIT_S = 400.0
PIPELINE = ROOT / "tests" / "spark" / "outputs_pipeline.py"


class Reading:
    """A Spark in a process of its own."""

    def __init__(self, work: Path, outputs: dict[str, str]) -> None:
        self.work = work
        self.errors = work / "errors.log"
        work.mkdir(exist_ok=True)
        (work / "ready").unlink(missing_ok=True)
        argv = [sys.executable, "-m", "tests.spark.reading_program", str(work), json.dumps(outputs)]
        with open(self.errors, "ab") as file:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            self.process = subprocess.Popen(
                argv, stderr=file, stdout=file, cwd=ROOT, env=environment, start_new_session=True
            )

    def until(self, what: str, holds: Any) -> None:
        def look() -> object:
            assert self.process.poll() in (None, 0), self.errors.read_text()[-3000:]
            return holds()

        eventually(look, what, within_s=WAIT_S)

    def batches(self, name: str) -> dict[int, list[dict[str, Any]]]:
        files = (self.work / name).glob("*.json")
        return {int(file.stem): json.loads(file.read_text()) for file in files}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The pipeline, which ends when there is a `gate`; its sinks are killed while it runs."""
    argv = [sys.executable, "-m", "deploy", "run", str(PIPELINE), "--state-dir", str(tmp_path / "job")]
    argv += [*sets(count=COUNT, rate=400, gate=tmp_path / "gate"), "--checkpoint-interval", "0.5"]
    for moment in ("table/0@0.8", "lines/1@1.2", "files/0@1.2", "number/0@2", "files/1@2"):
        argv += ["--kill", moment]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as run:
        yield run
        run.kill()


def stored(tmp_path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    with sqlite3.connect(tmp_path / "rows.db") as database:
        rows = database.execute("SELECT task, position, record FROM output").fetchall()
    return {(task, position): json.loads(record) for task, position, record in rows}


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[list[Reading]]:
    """A list of every Spark that is started; none outlives the test."""
    started: list[Reading] = []
    yield started
    for each in started:
        each.end()


@pytest.mark.timeout(900)  # two starts of Spark, beside whatever else the machine does
@pytest.mark.campaign
def test_every_row_is_read_once_whatever_dies(
    tmp_path: Path, reading: list[Reading], request: pytest.FixtureRequest
) -> None:
    outputs = {"table": str(tmp_path / "rows.db"), "lines": str(tmp_path / "lines"), "files": str(tmp_path / "files")}
    work = tmp_path / "reading"
    first = Reading(work, outputs)
    reading.append(first)
    first.until("Spark is up", (work / "ready").exists)
    job: subprocess.Popen[str] = request.getfixturevalue("job")
    first.until("every sink has begun", lambda: all(map(os.path.exists, outputs.values())))
    first.until("rows are there", lambda: (tmp_path / "rows.db").exists() and begun(tmp_path))
    (work / "go").touch()
    first.until("two batches are read", lambda: len(first.batches("batches")) >= 2)
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    before = first.batches("batches")
    (tmp_path / "gate").touch()  # so there is something left for the second one to read
    second = Reading(work, outputs)
    reading.append(second)
    said = job.communicate(timeout=WAIT_S)[1]
    assert job.returncode == 0, said
    (work / "finish").touch()
    second.until("it has read all", (work / "checks.json").exists)
    batches = second.batches("batches")
    assert sorted(batches) == list(range(len(batches))) and len(batches) > len(before)
    assert all(batches[number] == rows for number, rows in before.items()), "a batch that comes again differs"
    expect_each_once([batches[number] for number in sorted(batches)], stored(tmp_path))
    expect_checks(json.loads((work / "checks.json").read_text()), second.batches("bounded"))


def expect_each_once(batches: list[list[dict[str, Any]]], truth: dict[tuple[str, int], dict[str, Any]]) -> None:
    """Each row of each sink, in the order of its task; those of the table are to the last bit what people saw."""
    for name in ("table", "lines", "files"):
        of_sink = [[row for row in batch if row["sink"] == name] for batch in batches]
        assert all(len(batch) <= 200 for batch in of_sink)
        read = [row for batch in of_sink for row in batch]
        assert sorted((row["p"], row["i"]) for row in read) == [(p, i) for p in range(2) for i in range(COUNT)], name
        for task in sorted({row["_task"] for row in read}):
            positions = [row["_position"] for row in read if row["_task"] == task]
            assert positions == list(range(len(positions))), (name, task)
        if name == "table":
            fields = ("p", "i", "k", "n", "dice")
            assert {(row["_task"], row["_position"]): {f: row[f] for f in fields} for row in read} == truth


def begun(tmp_path: Path) -> bool:
    try:
        return bool(stored(tmp_path)) and any((tmp_path / "lines").glob(".*.journal"))
    except sqlite3.Error:
        return False


def expect_checks(checks: dict[str, Any], bounded: dict[int, list[dict[str, Any]]]) -> None:
    """Read without a stream, a stream that ends, and lines about what cannot be read."""
    for name in ("table", "lines", "files"):
        check = checks[name]
        assert (check["rows"], check["pairs"]) == (2 * COUNT, 2 * COUNT)
        wanted = {"p": "bigint", "i": "bigint", "k": "bigint", "n": "bigint", "dice": "double"}
        assert check["columns"] == wanted
        assert check["first"]["task"] == f"{name}/0" and check["first"]["position"] == 0
        assert json.loads(check["first"]["record"]).keys() == wanted.keys()
    assert [len(bounded[number]) for number in sorted(bounded)] == [600, 600]
    assert [row["rows"] for row in checks["largest"]] == [row["largest"] for row in checks["largest"]]
    assert sum(row["rows"] for row in checks["largest"]) == 2 * COUNT
    assert "nowhere does not exist: use the file of a SqliteSink" in checks["nowhere"]
    assert 'format "causal" has no option rows; known are path' in checks["misspelt"]
    assert "do not fit column n (bool)" in checks["unfit"]
