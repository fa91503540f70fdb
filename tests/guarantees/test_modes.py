"""Recorded runs of every guarantee, with kills: each keeps what it promises, and the checker sees what it does not.

That `at-least-once` doubles and `none` loses is arranged, not hoped for.  docs/guarantees.md has the same table.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill
from tests.faults.conftest import Start
from tests.faults.job import causal, wait_for
from tests.guarantees.checker import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, GOING_BACK, Verdict, check
from tests.guarantees.history import Failed, History
from tests.guarantees.recorder import CHANNELS, Recording, recording
from tests.guarantees.specs import SPECS
from tests.members import campaign

KILLED = (("fold/0",), ("merge/1", "fold/1"), ("left/0", "pair/0"), ("out/0",))
EXACT = ("causal", "epoch")


def judged(recorded: Mapping[str, History]) -> dict[str, Verdict]:
    return {name: check(SPECS[name], history) for name, history in recorded.items()}


@pytest.mark.parametrize(
    ("guarantee", "killed"), [("causal", KILLED[1:3]), *(campaign(each, KILLED) for each in EXACT)]
)
def test_no_reader_tells_exactly_once_from_a_run_without_failures(
    guarantee: str, killed: Sequence[tuple[str, ...]], start: Start, tmp_path: Path
) -> None:
    with recording(start, tmp_path, "--guarantee", guarantee, "--checkpoint-interval", "0.5") as run:
        run.job.until_warm()
        for tasks in killed:
            run.until_seen(120)
            run.kill(*tasks)
        recorded = run.finish()
    for name, verdict in judged(recorded).items():
        assert verdict.satisfied[0] == EXACTLY_ONCE, (name, verdict)
        assert sum(isinstance(event, Failed) for event in recorded[name].events) == len(killed)


def test_at_least_once_repeats_what_is_determined_and_contradicts_where_there_is_chance(
    start: Start, tmp_path: Path
) -> None:
    with recording(start, tmp_path, "--guarantee", "at-least-once", "--checkpoint-interval", "600") as run:
        run.job.until_warm(checkpoints=0)
        asked = ("savepoint", "--to", str(tmp_path / "copy"), "--state-dir", str(run.job.state))
        assert causal(tmp_path, *asked) == (0, "")  # one checkpoint, and no other
        run.until_seen(200)  # rows that it does not cover
        run.kill("merge/1")  # and everybody goes back
        run.until_seen(100)
        recorded = run.finish()
    verdicts = judged(recorded)
    assert all(each.doubled and not each.lost and not each.impossible for each in verdicts.values()), verdicts
    assert verdicts["passed"].satisfied == (AT_LEAST_ONCE, GOING_BACK), verdicts["passed"]
    for name in ("folded", "merged"):
        assert verdicts[name].satisfied == (GOING_BACK,) and verdicts[name].contradicted, (name, verdicts[name])
    assert not others_than_before(recorded["folded"]), "a fold that goes back can only say the same again"
    assert others_than_before(recorded["merged"]) > 0


def others_than_before(history: History) -> int:
    """Return the number of rows that differ from an earlier row of the same element."""
    contents: dict[Any, Any] = {}
    count = 0
    for each in history.outputs:
        count += contents.setdefault((each.element, each.key), each.content) != each.content
    return count


@pytest.mark.campaign
def test_none_loses_what_was_on_its_way_and_all_state(start: Start, tmp_path: Path) -> None:
    with recording(start, tmp_path, "--guarantee", "none") as run:
        run.until_seen(200)
        pids = [run.job.pid_of(task) for task in ("out/0", "pass/0", "fold/0", "merge/0")]
        kill(pids[0], signal.SIGSTOP)  # what others have performed for it from now on only they hold, and they die too
        before = entered(run)
        wait_for(
            "elements of each channel that the sink does not take",
            lambda: all(count >= before[task] + 30 for task, count in entered(run).items()),
        )
        run.fail("kill the sink and what is before it", lambda: [kill(pid) for pid in pids])
        run.job.until_replaced(*pids)
        run.until_seen(120)
        recorded = run.finish()
    verdicts = judged(recorded)
    assert verdicts["passed"].lost and verdicts["folded"].lost, verdicts
    assert EXACTLY_ONCE not in verdicts["passed"].satisfied and AT_LEAST_ONCE not in verdicts["passed"].satisfied
    assert not verdicts["passed"].contradicted and verdicts["folded"].contradicted and verdicts["merged"].contradicted
    assert verdicts["folded"].satisfied == verdicts["merged"].satisfied == ()
    assert verdicts["passed"].doubled or verdicts["passed"].satisfied == (AT_MOST_ONCE,)


def entered(run: Recording) -> dict[str, int]:
    """Return elements that each source has given, as far as it has said so."""
    view = run.job.view()
    assert view is not None
    return {
        task["task"]: task["figures"].get("records_in", 0) for task in view["tasks"] if task["task"][:-2] in CHANNELS
    }
