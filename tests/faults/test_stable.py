"""Determinants in files mask more deaths than the sharing depth: no task goes back, no row is withdrawn (design 0012).

What was logged in the last milliseconds before a kill may not be written yet, so these jobs are killed in a pause, when
all is: `tests/faults/test_sharing_depth.py` shows what the same deaths cost without.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import Start
from tests.faults.job import Job
from tests.faults.test_sharing_depth import ROW, assert_linked, begin
from tests.members import members

COUNT = 400

HELD_BACK = 1
"""The number of elements that the source gives only when the gate opens."""

FLUSH = ("--determinant-flush", "background")


def until_stable(job: Job) -> None:
    """Everything that was read is visible, every task runs, and all that was logged is in files."""
    job.until_warm(checkpoints=0)

    def still(view: dict[str, Any]) -> bool:
        figures = [task["figures"] for task in view["tasks"]]
        written = all(each.get("unwritten_bytes") == 0 for each in figures)
        return written and figures[-1].get("records_out", 0) >= COUNT - HELD_BACK

    job.until("all rows are visible and all determinants written", still)


def without_rollback(report: dict[str, Any], directory: Path) -> None:
    assert {recovery["mode"] for recovery in report["recoveries"]} <= {"standby", "cold"}
    assert report["withdrawn"] == 0
    assert_linked(directory, COUNT)


@pytest.mark.parametrize("dead", members([2, 3], 3))
def test_more_neighbours_than_the_depth(start: Start, tmp_path: Path, dead: int) -> None:
    job = begin(start, tmp_path, "1", *FLUSH, count=COUNT)
    groups = [ROW[first : first + dead] for first in range(0, len(ROW) - dead + 1, dead)]
    for tasks in groups:
        until_stable(job)
        job.replace(*tasks)
    until_stable(job)
    (tmp_path / "gate").touch()
    report = job.finish_well()
    recovered = [recovery["task"] for recovery in report["recoveries"]]
    assert sorted(recovered) == sorted(task for tasks in groups for task in tasks)
    without_rollback(report, tmp_path)


@pytest.mark.parametrize("depth", members(["1", "full"]))
def test_every_process_at_once(start: Start, tmp_path: Path, depth: str) -> None:
    job = begin(start, tmp_path, depth, *FLUSH, count=COUNT)
    until_stable(job)
    job.kill_everything()
    (tmp_path / "gate").touch()
    job.start("--resume")
    without_rollback(job.finish_well(), tmp_path)


@pytest.mark.campaign
def test_kills_while_it_runs(start: Start, tmp_path: Path) -> None:
    """Nothing is lost at full depth, whatever was written by then."""
    job = begin(start, tmp_path, "full", *FLUSH, count=COUNT)
    for tasks in (ROW[1:3], ROW[2:5], ROW):
        job.replace(*tasks)
    (tmp_path / "gate").touch()
    without_rollback(job.finish_well(), tmp_path)
