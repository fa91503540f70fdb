"""Whole jobs whose rows, requests and dead letters are in a shared store, and whose processes are killed."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.harness.runs import sets
from benchmarks.servers.s3 import BUCKET, s3_server
from causal.config import JobConfig
from causal.storage.shared import Depot
from operators.outputs import open_output
from operators.sinks.objects.object_place import rows_in
from tests.faults.conftest import Start
from tests.faults.job import Job
from tests.members import members

PIPELINE = Path(__file__).resolve().parent / "pipelines" / "stored.py"
COUNT, EVERY = 200, 50
KILLED = ("out/0", "asked/0", "dead-letters/0", "count/0", "out/1")


def begun(start: Start, directory: Path, url: str, **settings: object) -> Job:
    (directory / "world").mkdir()
    values = {"out": f"{url}/out", "world": directory / "world", "count": COUNT, "rate": 40, **settings}
    values = {"gate": directory / "gate", "sink": "lines", **values}
    stored = ("--store", url, "--on-error", "dead-letter", "--checkpoint-interval", "0.4")
    return start(PIPELINE, *sets(**values), *stored)


def all_rows(url: str) -> list[dict[str, Any]]:
    """Return the rows as our reader gives them, which must be those that any program finds in the objects."""
    output = open_output(url)
    output.look()
    records: list[dict[str, Any]] = []
    for task, end in sorted(output.ends(False).items()):
        for _, rows in output.rows(task, 0, end):
            records += [json.loads(text) for text in rows] if isinstance(rows, list) else rows.to_pylist()
    depot = Depot(url, "")
    plain: list[dict[str, Any]] = []
    for ranges in rows_in(depot, output.run).values():
        for _, _, name in ranges:
            stored = depot.read(name)
            if name.endswith(".parquet"):
                plain += pq.read_table(pa.BufferReader(stored)).to_pylist()
            else:
                plain += [json.loads(line) for line in stored.split(b"\n")[:-1]]
    assert sorted(plain, key=repr) == sorted(records, key=repr)
    return records


def check(url: str, directory: Path, run: str) -> None:
    expected = [(p, i) for p in range(2) for i in range(COUNT)]
    rows = all_rows(f"{url}/out")
    assert sorted((row["p"], row["i"]) for row in rows) == [(p, i) for p, i in expected if i % EVERY]
    counted = defaultdict(list)
    for row in rows:
        counted[row["i"] % 10].append(row["n"])
    assert all(sorted(numbers) == list(range(1, len(numbers) + 1)) for numbers in counted.values())
    letters = all_rows(f"{url}/stored/{run}/dead-letters")
    assert sorted((letter["record"]["p"], letter["record"]["i"]) for letter in letters) == [
        (p, i) for p, i in expected if i % EVERY == 0
    ]
    asked = {int(path.read_text().split()[0]): path.name for path in (directory / "world").iterdir()}
    assert len(asked) == len(list((directory / "world").iterdir())) == len(expected), "one key per record"
    assert all(row["key"] == asked[row["p"] * 1_000_000 + row["i"]] for row in rows)
    assert not (directory / "job" / "requests").exists()
    assert not (directory / "job" / "dead-letters").exists()


@pytest.mark.parametrize(
    ("url", "sink"),
    members([("file", "lines"), ("s3", "lines"), ("file", "parquet"), ("s3", "parquet")]),
    indirect=["url"],
)
def test_every_task_is_killed_and_rows_letters_and_requests_are_exact(
    start: Start, tmp_path: Path, url: str, sink: str
) -> None:
    job = begun(start, tmp_path, url, sink=sink)
    job.until_warm(records=60)
    for task in KILLED:
        job.replace(task)
    (tmp_path / "gate").touch()
    job.finish_well()
    check(url, tmp_path, JobConfig.load(tmp_path / "job").run)


@pytest.mark.parametrize("url", members(["file", "s3"]), indirect=True)
def test_everything_dies_and_a_job_that_is_resumed_continues(start: Start, tmp_path: Path, url: str) -> None:
    job = begun(start, tmp_path, url)
    job.until_warm(records=100)
    job.kill_everything()
    job.start("--resume")
    job.until_warm(records=200)
    (tmp_path / "gate").touch()
    job.finish_well()
    check(url, tmp_path, JobConfig.load(tmp_path / "job").run)


def test_a_store_that_does_not_answer_for_a_while_throttles_the_job_and_loses_nothing(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every task is killed before, and all after that: the default of the tests above."""
    pytest.importorskip("obstore", reason="obstore is not installed (extra hosts)")
    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{BUCKET}/{tmp_path.name}"
        job = begun(start, tmp_path, url)
        job.until_warm(records=60)
        for task in KILLED:
            job.replace(task)
        job.until_warm(records=60)
        with server.away():
            # Whichever writes first: the requests' task holds up the sinks after it, or the other way round.
            job.until("a task waits for its store", lambda view: any(task.get("waiting") for task in view["tasks"]))
        job.until("none waits", lambda view: not any(task.get("waiting") for task in view["tasks"]))
        job.kill_everything()
        job.start("--resume")
        job.until_warm(records=60)
        (tmp_path / "gate").touch()
        job.finish_well()
        check(url, tmp_path, JobConfig.load(tmp_path / "job").run)
