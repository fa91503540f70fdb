"""Rows for people: each is on the standard output of `causal run` once, whatever dies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import sets
from tests.faults.conftest import Start
from tests.faults.job import NUMBERED, assert_numbered

COUNT = 6000
CONSOLE = {"sink": "console", "count": COUNT, "width": 2, "rate": 200}
PAD = 1000


def test_rows_are_printed_once_whichever_task_dies_and_a_resumed_job_prints_the_others(
    start: Start, tmp_path: Path
) -> None:
    job = start(NUMBERED, *sets(**CONSOLE, gate=tmp_path / "gate"))
    job.until_warm(records=50)
    for task in ("out/0", "number/1", "out/1"):
        job.replace(task)
    job.until_written(300)
    job.interrupt()
    status, said = job.finish()
    before = [json.loads(line) for line in job.printed.splitlines()]
    assert status == 130 and "resume it with: causal run " in said, said
    assert before
    (tmp_path / "gate").touch()
    job.start("--resume")
    report = job.finish_well()
    rows = before + [json.loads(line) for line in job.printed.splitlines()]
    for key in range(7):  # those of a key are in their order
        assert [row["n"] for row in rows if row["k"] == key] == list(range(1, len(range(key, COUNT, 7)) + 1))
    assert_numbered(sorted(rows, key=lambda row: int(row["i"])), COUNT)
    assert report["records_out"] == COUNT


def test_who_reads_slowly_throttles_the_job_and_what_was_printed_takes_no_room(start: Start, tmp_path: Path) -> None:
    """The pipe of `causal run` is not read until a sink waits for that; a task that dies then still waits."""
    (tmp_path / "gate").touch()
    job = start(NUMBERED, *sets(**CONSOLE, gate=tmp_path / "gate", pad=PAD, kept=1 << 16))

    def waiting(view: dict[str, Any]) -> list[str] | None:
        reasons = [task["waiting"]["reason"] for task in view["tasks"] if task["waiting"]]
        return reasons if len(reasons) == 2 else None

    for reason in job.until("both sinks wait for a reader", waiting):
        assert "bytes of rows wait to be printed, but kept_bytes_max is 65536; read the output" in reason
    job.replace("out/0")
    job.until("both sinks wait for a reader again", waiting)
    job.finish_well()
    assert sorted(json.loads(line)["i"] for line in job.printed.splitlines()) == list(range(COUNT))
    files = sorted((job.state / "console").glob("*.jsonl"))
    assert sum(path.stat().st_size for path in files) > COUNT * PAD
    assert sum(path.stat().st_blocks * 512 for path in files) < COUNT * PAD / 10
