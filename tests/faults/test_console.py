"""Rows for people: each is on the standard output of `causal run` once, whoever dies."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.torture_processes import kill
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES

COUNT = 6000


def test_rows_are_printed_once_whichever_task_dies_and_a_resumed_job_prints_the_others(
    start: Start, tmp_path: Path
) -> None:
    job = start(PIPELINES / "shown.py", "--set", f"count={COUNT}", "--set", f"gate={tmp_path / 'gate'}")
    job.until_warm(records=50)
    for task in ("out/0", "number/1", "out/1"):
        pid = job.pid_of(task)
        kill(pid)
        job.until_replaced(pid)
    job.until_written(300)
    job.interrupt()
    status, said = job.finish()
    before = [json.loads(line) for line in job.printed.splitlines()]
    assert status == 130 and "goes on" in said, said
    assert before
    (tmp_path / "gate").touch()
    job.start("--resume")
    report = job.finish_well()
    rows = before + [json.loads(line) for line in job.printed.splitlines()]
    assert sorted(row["i"] for row in rows) == list(range(COUNT))
    for key in range(7):
        assert [row["n"] for row in rows if row["k"] == key] == list(range(1, len(range(key, COUNT, 7)) + 1))
    assert report["records_out"] == COUNT
