"""Other sinks and other paths: files per sink task, and the logs kept for replay going through the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job

COUNT = 2000


def rows_of(directory: Path) -> list[list[dict[str, Any]]]:
    files = sorted(directory.glob("*.jsonl"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def killed(start: Start, directory: Path, moments: tuple[str, ...], *settings: str) -> dict[str, Any]:
    """Return the report of a job that ended after all of these kills."""
    gate = directory / "gate"
    kills = [f"--kill={moment}" for moment in moments]
    return start(PIPELINES / "spread.py", *sets(count=COUNT, gate=gate), *settings, *kills).finish_killed(gate)


def test_two_tasks_with_a_file_each_write_every_line_once(start: Start, tmp_path: Path) -> None:
    moments = ("out/0@2.5", "number/1@3.0", "out/1@3.0", "all/0@3.5", "out/0@4.0")
    report = killed(start, tmp_path, moments, "--set", "rate=400")
    assert len(report["recoveries"]) == len(moments)
    files = rows_of(tmp_path / "rows")
    rows = [row for file in files for row in file]
    assert len(files) == 2 and all(files)
    assert sorted((row["p"], row["i"]) for row in rows) == [(p, i) for p in range(2) for i in range(COUNT)]
    for key in range(23):
        numbers = [row["n"] for row in rows if row["k"] == key]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


def spilled(job: Job) -> bool:
    return any(file.stat().st_size for file in (job.state / "spill").glob("numbers/*/*.seg"))


def test_what_outgrows_memory_is_replayed_from_disk(start: Start, tmp_path: Path) -> None:
    config = {"inflight_memory_bytes_max": 1 << 18, "batch_elements_max": 128, "checkpoint_interval_s": 2.0}
    count = 4000
    gate = tmp_path / "gate"
    job = start(PIPELINES / "heavy.py", *sets(count=count, gate=gate), config=config)
    for task in ("slow/0", "numbers/0", "slow/0"):
        job.until("elements are on disk", lambda view: spilled(job))
        job.replace(task)
    gate.touch()
    job.finish_well()
    rows = list(records_in(tmp_path / "heavy.db"))
    assert [row["i"] for row in rows] == list(range(count))
    assert [row["n"] for row in rows] == [i // 7 + 1 for i in range(count)]
    assert {row["bytes"] for row in rows} == {2048}
