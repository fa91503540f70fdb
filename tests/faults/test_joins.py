"""Joins and tables in a real job whose tasks are killed: each pair once, and revisions that add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.torture_processes import kill
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES

COUNT = 1500


def written(directory: Path) -> list[Any]:
    return [json.loads(line) for file in directory.glob("*.jsonl") for line in file.read_text().splitlines()]


def test_every_task_of_a_join_may_die(start: Start, tmp_path: Path) -> None:
    settings = ["--set", f"count={COUNT}", "--set", "rate=600", "--set", f"out={tmp_path / 'pairs'}"]
    job = start(PIPELINES / "joined.py", *settings, "--checkpoint-interval", "0.5")
    job.until_warm(records=500, checkpoints=1)
    groups = (("pay/0",), ("order-time/0", "pay/1"), ("payment-time/0", "pairs/0"))
    for tasks in groups:
        dying = [job.pid_of(task) for task in tasks]
        for pid in dying:
            kill(pid)
        job.until_replaced(*dying)
    report = job.finish_well()
    assert sorted(recovery["task"] for recovery in report["recoveries"]) == sorted(t for tasks in groups for t in tasks)
    rows = sorted(written(tmp_path / "pairs"), key=lambda row: row["order"])
    assert rows == [{"order": number, "paid": number if number % 3 else None} for number in range(2 * COUNT)]
