"""Tasks are killed one by one, together and again while they recover: the sink shows no trace of it.

The job is `examples/fraud_chain.py`, in which every output is hashed onto the one before it.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import pytest

from benchmarks.harness.processes import kill
from tests.faults.conftest import HeldChain
from tests.members import campaign, members

StartChain = Callable[..., HeldChain]

TASKS = ("shop/0", "web/0", "score/0", "score/1", "totals/0", "totals/1", "ledger/0", "out/0")
KINDS = ("shop/0", "score/1", "totals/0", "ledger/0", "out/0")


@pytest.mark.parametrize("tasks", [pytest.param(KINDS, id="of each kind one"), campaign(TASKS, id="all")])
def test_every_task_in_turn(start_chain: StartChain, tasks: tuple[str, ...]) -> None:
    chain = start_chain()
    chain.job.until_warm()
    for task in tasks:
        chain.job.until_warm()
        chain.job.replace(task)
    report = chain.finish_exactly()
    assert [recovery["task"] for recovery in report["recoveries"]] == list(tasks)
    assert {recovery["mode"] for recovery in report["recoveries"]} == {"standby"}


TOGETHER = {
    "apart": ("shop/0", "ledger/0"),
    "neighbours": ("score/0", "totals/1"),
    "before the sink": ("ledger/0", "out/0"),
    "all of them": TASKS,
}


LARGEST = ("before the sink", "all of them")


@pytest.mark.parametrize("names", [pytest.param(LARGEST, id="largest"), campaign(tuple(TOGETHER), id="all")])
def test_several_tasks_at_the_same_moment(start_chain: StartChain, names: tuple[str, ...]) -> None:
    chain = start_chain()
    groups = [TOGETHER[name] for name in names]
    for group in groups:
        chain.job.until_warm()
        chain.job.replace(*group)
    recoveries = chain.finish_exactly()["recoveries"]
    assert Counter(r["task"] for r in recoveries) == Counter(task for group in groups for task in group)


def test_more_neighbours_at_once_than_the_sharing_depth_covers(start_chain: StartChain) -> None:
    """Both shops and both scorers die with each other's determinants: tasks that depend on them are rolled back."""
    chain = start_chain("--sharing-depth", "1", "--checkpoint-interval", "600")
    chain.job.until_warm(records=200, checkpoints=0)
    chain.job.replace("shop/0", "web/0", "score/0", "score/1")
    report = chain.finish_exactly()
    back = {recovery["task"]: recovery["why"] for recovery in report["recoveries"] if recovery["mode"] == "rollback"}
    assert "out/0" in back and "lost" in back["out/0"], report["recoveries"]
    assert report["withdrawn"] > 0


@pytest.mark.campaign
def test_the_same_task_again_while_it_recovers(start_chain: StartChain) -> None:
    moments = ("score/0@2.5", "score/0@2.53", "score/0@2.8", "out/0@4.5", "out/0@4.6", "out/0@5.8")
    chain = start_chain(*(f"--kill={moment}" for moment in moments))
    chain.job.until_killed()
    report = chain.finish_exactly()
    assert Counter(r["task"] for r in report["recoveries"]) == {"score/0": 3, "out/0": 3}


def test_tasks_that_hang_are_replaced_and_wake_to_nothing(start_chain: StartChain) -> None:
    chain = start_chain(heartbeat_timeout_ms=2000)
    chain.job.until_warm()
    stopped = {task: chain.job.pid_of(task) for task in ("score/1", "out/0")}
    for pid in stopped.values():
        kill(pid, signal.SIGSTOP)
    chain.job.until_replaced(*stopped.values())
    for pid in stopped.values():
        kill(pid, signal.SIGCONT)
    report = chain.finish_exactly()
    assert {recovery["task"] for recovery in report["recoveries"]} >= set(stopped)


SETTINGS = {
    "a pool of standbys, over tcp": (("--standbys", "2"), {"transport": "tcp"}),
    "no standbys": (("--standbys", "0"), {}),
    "sharing depth 1": (("--sharing-depth", "1"), {}),
}


@pytest.mark.parametrize("name", members(SETTINGS, "a pool of standbys, over tcp"))
def test_kills_under_other_settings(start_chain: StartChain, name: str) -> None:
    arguments, config = SETTINGS[name]
    tasks = ("score/0", "shop/0", "ledger/0", "out/0")
    chain = start_chain(*arguments, **config)
    for task in tasks:
        chain.job.until_warm()  # at depth 1 a task that has not collected yet cannot stand in for another
        chain.job.replace(task)
    report = chain.finish_exactly()
    assert [recovery["task"] for recovery in report["recoveries"]] == list(tasks)
    if name == "no standbys":
        assert {recovery["mode"] for recovery in report["recoveries"]} == {"cold"}
