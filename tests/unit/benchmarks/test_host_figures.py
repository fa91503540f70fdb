"""Figures of lost hosts: which recoveries belong to a loss, and what counts as wrong; no job runs here."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.measured import PHASES
from benchmarks.harness.runs import RunFailed
from benchmarks.hosts import deaths
from benchmarks.hosts.counted import wrong
from benchmarks.report import goals
from tests.soak import host_losses

MS = 1_000_000


def recovery(since_ms: int, first_output_ms: float | None, detected_ms: float = 5.0) -> dict[str, Any]:
    """Return a recovery as a report has it; its times count from the last sign of life."""
    phases = dict.fromkeys(PHASES, first_output_ms)
    return {"task": "count/0", "since_ns": since_ms * MS, **phases, "detected_ms": detected_ms}


def test_a_loss_takes_as_long_as_its_last_task_from_the_moment_of_the_loss() -> None:
    recoveries = [recovery(950, 80.0, 60.0), recovery(990, 130.0, 20.0), recovery(1990, 30.0, 20.0)]
    spans = deaths._spans([1000 * MS, 2000 * MS])
    assert deaths._phases(recoveries, *spans[0])["first_output_ms"] == 120.0
    assert deaths._phases(recoveries, *spans[0])["tasks"] == 2
    assert deaths._phases(recoveries, *spans[1])["first_output_ms"] == 20.0


def test_a_loss_without_a_task_or_without_an_end_has_no_figure() -> None:
    with pytest.raises(RunFailed, match="without a task"):
        deaths._phases([recovery(950, 80.0)], 2000 * MS, 3000 * MS)
    with pytest.raises(RunFailed, match="has no promoted_ms"):
        deaths._phases([recovery(990, None, 20.0)], 1000 * MS, 2000 * MS)


def row(v: int, n: int, partition: int = 0) -> dict[str, int]:
    return {"key": 1, "n": n, "v": v, "partition": partition}


def test_each_fault_of_rows_is_counted() -> None:
    whole = [row(0, 1), row(1, 2), row(0, 3, 1), row(1, 4, 1)]
    assert wrong(whole, 2) == {"lost": 0, "doubled": 0, "contradicted": 0}
    assert wrong(whole[:3], 2)["lost"] == 1
    assert wrong([*whole, row(1, 5, 1)], 2)["doubled"] == 1
    assert wrong([whole[1], whole[0], *whole[2:]], 2)["contradicted"] > 0


def test_losses_of_an_earlier_run_count_and_another_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "losses.json"
    outcome = host_losses.Outcome(4, "redis", losses=7, rows=100, wrong=dict.fromkeys(host_losses.WRONG, 0))
    options = Namespace(losses=7, per_job=3, seed=4, kinds=(), json=path, keep=None)
    path.write_text(json.dumps(host_losses._result(options, "command", [outcome])))
    assert host_losses._earlier(path) == [outcome]
    path.write_text(json.dumps({"benchmark": "recovery"}))
    with pytest.raises(RunFailed, match="holds other results"):
        host_losses._earlier(path)


def test_a_job_that_failed_fails_the_campaign_and_wrong_rows_miss_the_goal() -> None:
    options = Namespace(losses=7, per_job=3, seed=4, kinds=())
    outcome = host_losses.Outcome(4, "redis", losses=7, wrong={"lost": 2, "visible_contradicted": 1}, problem="it hung")
    result = host_losses._result(options, "command", [outcome])
    assert result["failed"] and "job 4: it hung" in result["summary"]
    measured = goals.wrong_after_losses(result)
    assert (measured.value, measured.runs) == (3.0, 7)
