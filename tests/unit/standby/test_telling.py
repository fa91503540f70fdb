"""The supervisor's log shows failures and recoveries, and does not grow while nothing fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from standby.supervision import effects, log_lines
from standby.supervision.log_lines import line_of

GONE = {"kind": "gone", "slot": "w3", "task": "count/0", "incarnation": 1, "recover": True}
PROMOTED = {"kind": "promoted", "task": "count/0", "slot": "w7", "epoch": 4, "mode": "standby"}
PHASE = {"kind": "phase", "task": "count/0", "at_ns": 1, "detail": 40}


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (GONE, "count/0: w3 has ended, which was incarnation 1"),
        ({**GONE, "task": ""}, "w3, which ran no task, has ended"),
        ({**PROMOTED, "incarnation": 1}, "count/0 is w7"),
        ({**PROMOTED, "incarnation": 2}, "count/0: w7 takes over as incarnation 2 (standby), from checkpoint 4"),
        ({**PHASE, "phase": "replayed", "incarnation": 2}, "count/0: incarnation 2 has replayed 40 elements"),
        ({**PHASE, "phase": "running", "incarnation": 2}, "count/0: incarnation 2 is live"),
        ({"kind": "killing", "slot": "w3", "why": "silent"}, "w3 is killed: silent"),
        ({"kind": "savepoint", "epoch": 9, "final": True}, "checkpoint 9 will be a savepoint, where the sources stop"),
        (
            {"kind": "rolled_back", "tasks": {"a/0": 2, "b/0": 3}, "why": {"a/0": "it was lost", "b/0": ""}},
            "a/0, b/0 roll back to the last checkpoint: it was lost",
        ),
    ],
)
def test_a_decision_about_a_failure_is_one_line(record: effects.Record, line: str) -> None:
    assert line_of(record) == line


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "checkpoint", "epoch": 4},
        {"kind": "process", "slot": "w8"},
        {"kind": "first_record", "at_ns": 4},
        {**GONE, "recover": False},
        {**PHASE, "phase": "running", "incarnation": 1},
        {**PHASE, "phase": "finished", "incarnation": 2},
    ],
)
def test_what_happens_in_a_healthy_job_is_not_told(record: effects.Record) -> None:
    assert line_of(record) is None


def test_a_rollback_of_very_many_tasks_is_still_one_short_line() -> None:
    line = line_of({"kind": "rolled_back", "tasks": {f"t/{i:03}": 2 for i in range(500)}, "why": {}})
    assert line is not None and "and 492 more roll back" in line and len(line) < 120


def test_every_kind_that_is_told_is_one_that_the_supervisor_decides() -> None:
    home = Path(effects.__file__).parent
    decided = set(re.findall(r'decide\(\s*"(\w+)"', "".join(path.read_text() for path in home.glob("*.py"))))
    assert set(log_lines._LINES) <= decided
