"""The simulator with changes of the running job in the test suite: whatever fails at any step of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.members import members
from tests.simulation.change_faults import COMMIT_DIES, DIES, STEPS, Change
from tests.simulation.clockwork import MS
from tests.simulation.scenario import draw_changes, plain
from tests.simulation.test_simulation import failing
from tests.simulation.trial import Outcome, run

GROUP = 10
GROUPS = members(range(0, 400, GROUP), 20, 140)
TROUBLED = members(
    [(trouble, step) for trouble in ("supervisor", "task", "next", "everything") for step in STEPS],
    ("supervisor", "stores"), ("task", "stores"), ("next", "files"), ("everything", "commit"),
)  # fmt: skip
CHANGED = replace(plain(3, (1, 2, 1), records=140), batch_every_ms=90, input_s=13, checkpoint_ms=150)


@pytest.mark.parametrize("first", GROUPS)
def test_every_promise_is_kept_while_jobs_change(first: int) -> None:
    outcomes = [run(draw_changes(seed)) for seed in range(first, first + GROUP)]
    assert not failing(outcomes), failing(outcomes)
    assert sum((outcome.figures for outcome in outcomes), Counter[str]())["changes"] > 2


def _changed(change: Change) -> Outcome:
    """Run a job with this change, and one that follows."""
    outcome = run(replace(CHANGED, changes=(change, Change(change.at_ns + 200 * MS))))
    assert not outcome.problem, outcome.problem
    return outcome


def test_a_job_changes_twice() -> None:
    outcome = _changed(Change(700 * MS))
    assert outcome.figures["changes"] == 2 and outcome.figures["changes that ended"] == 0
    assert outcome.figures["processes"] == 3 * 2 * 4, "each version has a process and a standby for each task"


@pytest.mark.parametrize("step", members(STEPS, "follow", "files", "commit", "over"))
def test_a_command_that_dies_leaves_a_version_that_can_be_changed(step: str) -> None:
    outcome = _changed(Change(700 * MS, trouble=DIES, step=step))
    assert outcome.figures["changes"] == 1 + (step == "over")


@pytest.mark.parametrize(("trouble", "step"), TROUBLED)
def test_a_process_that_dies_at_a_step_leaves_a_version_that_can_be_changed(trouble: str, step: str) -> None:
    outcome = _changed(Change(700 * MS, trouble=trouble, step=step, who=1, extent=2))
    assert outcome.faults[f"change {trouble}"] == 1 and outcome.figures["changes"] >= 1


@pytest.mark.parametrize("steps", range(4))
def test_a_supervisor_that_dies_in_the_commit_leaves_it_to_the_next(steps: int) -> None:
    outcome = _changed(Change(700 * MS, trouble=COMMIT_DIES, step="commit", extent=steps))
    assert outcome.figures["changes"] == 2
