"""Joins and tables in a real job whose tasks are killed: each pair once, and revisions that add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import lines_in
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES

COUNT = 1500


def folded(rows: Iterable[Any]) -> dict[Any, Any]:
    """Return what revisions of one table add up to, whichever task wrote them; fails where they do not fit."""
    totals: dict[Any, Any] = {}
    waiting = [(tuple(key) if isinstance(key, list) else key, old, new) for key, old, new in rows]
    for key, old, new in waiting:
        assert totals.get(key) == old != new, (key, old, new)
        totals[key] = new
    return totals


@pytest.mark.campaign
def test_every_task_of_joins_and_tables_may_die(start: Start, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("out", "revisions", "sums")}
    settings = sets(count=COUNT, rate=200, gate=tmp_path / "gate", **places)
    job = start(PIPELINES / "joined.py", *settings, "--checkpoint-interval", "0.5")
    job.until_warm(records=500, checkpoints=1)
    groups = (("pay/0", "revisions/0"), ("order-time/0", "pay/1", "windows/0"), ("payment-time/0", "out/0", "summed/0"))
    for tasks in groups:
        job.replace(*tasks)
    (tmp_path / "gate").touch()
    report = job.finish_well()
    assert sorted(recovery["task"] for recovery in report["recoveries"]) == sorted(t for tasks in groups for t in tasks)
    rows = sorted(lines_in(tmp_path / "out"), key=lambda row: row["order"])
    assert rows == [{"order": number, "paid": number if number % 3 else None} for number in range(2 * COUNT)]
    expected = Counter((number % 7, number // 2 // 100 * 10) for number in range(2 * COUNT))
    counts = folded(lines_in(tmp_path / "revisions"))
    assert {(key, start): n for (key, start, _), n in counts.items()} == expected
    sums: Counter[int] = Counter()
    for (_, begin), n in expected.items():
        sums[begin] += n
    assert folded(lines_in(tmp_path / "sums")) == sums


def ready(view: dict[str, Any]) -> bool:
    """Return whether each task that has not ended has its standby; the rules end soon."""
    tasks = [task for task in view["tasks"] if task["state"] != "finished"]
    return view["checkpoint"]["count"] > 0 and all(task["state"] == "running" and task["standbys"] for task in tasks)


def test_every_task_that_holds_rules_and_rows_may_die(start: Start, tmp_path: Path) -> None:
    settings = sets(count=COUNT, rate=200, out=tmp_path / "out", gate=tmp_path / "gate")
    job = start(PIPELINES / "ruled.py", *settings, "--checkpoint-interval", "0.5", own_standbys=True)
    job.until("a checkpoint, all standbys ready", ready)
    groups = (("judge/0", "named/0"), ("events/0", "judge/1"), ("named/1", "out/0"))
    for tasks in groups:
        job.replace(*tasks)
    (tmp_path / "gate").touch()
    report = job.finish_well()
    assert sorted(recovery["task"] for recovery in report["recoveries"]) == sorted(t for tasks in groups for t in tasks)
    of_key = Counter((i * 3 + p) % 10 for p in range(2) for i in range(COUNT))
    rows = sorted(lines_in(tmp_path / "out"), key=lambda row: (row["k"], row["n"]))
    assert rows == [
        {"k": key, "n": n, "limit": key + 10, "rules": 10, "name": f"n{key + 20}"}
        for key in range(10)
        for n in range(1, of_key[key] + 1)
    ]
