"""Tasks are killed one by one, together and again while they recover: the sink cannot tell that anything happened.

The job is `examples/fraud_chain.py`, in which every output is hashed onto the one before it.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import pytest

from benchmarks.torture_processes import kill
from tests.faults.conftest import FraudChain

Fraud = Callable[..., FraudChain]

TASKS = ("shop/0", "web/0", "score/0", "score/1", "totals/0", "totals/1", "ledger/0", "out/0")


def kills(*moments: str) -> list[str]:
    return [part for moment in moments for part in ("--kill", moment)]


def test_every_task_in_turn(fraud: Fraud) -> None:
    chain = fraud(9.0, *kills(*(f"{task}@{3.0 + 0.6 * turn}" for turn, task in enumerate(TASKS))))
    report = chain.finish_exactly()
    assert [recovery["task"] for recovery in report["recoveries"]] == list(TASKS)
    assert {recovery["mode"] for recovery in report["recoveries"]} == {"standby"}


TOGETHER = {
    "apart": ("shop/0", "ledger/0"),
    "neighbours": ("score/0", "totals/1"),
    "before the sink": ("ledger/0", "out/0"),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_several_tasks_at_the_same_moment(fraud: Fraud, name: str) -> None:
    chain = fraud(4.0, *kills(*(f"{task}@2.5" for task in TOGETHER[name])))
    report = chain.finish_exactly()
    assert {recovery["task"] for recovery in report["recoveries"]} == set(TOGETHER[name])


def test_every_task_at_the_same_moment(fraud: Fraud) -> None:
    report = fraud(4.0, *kills(*(f"{task}@2.5" for task in TASKS))).finish_exactly()
    assert Counter(recovery["task"] for recovery in report["recoveries"]) == Counter(TASKS)


def test_more_neighbours_at_once_than_the_sharing_depth_covers(fraud: Fraud) -> None:
    """Both shops and both scorers die with each other's determinants: whoever depends on them goes back with them."""
    dying = ("shop/0", "web/0", "score/0", "score/1")
    chain = fraud(4.0, "--sharing-depth", "1", "--checkpoint-interval", "60", *kills(*(f"{t}@2.5" for t in dying)))
    report = chain.finish_exactly()
    back = {recovery["task"]: recovery["why"] for recovery in report["recoveries"] if recovery["mode"] == "rollback"}
    assert "out/0" in back and "lost" in back["out/0"], report["recoveries"]
    assert report["withdrawn"] > 0


@pytest.mark.parametrize(
    "moments",
    [("score/0@2.5", "score/0@2.53", "score/0@2.8"), ("out/0@2.5", "out/0@2.6", "out/0@3.8")],
    ids=["operator", "sink"],
)
def test_the_same_task_again_while_it_recovers(fraud: Fraud, moments: tuple[str, ...]) -> None:
    report = fraud(4.5, *kills(*moments)).finish_exactly()
    assert len(report["recoveries"]) == len(moments)


def test_tasks_that_hang_are_replaced_and_wake_to_nothing(fraud: Fraud) -> None:
    chain = fraud(5.0, heartbeat_ms=100, suspect_after_ms=600)
    chain.job.until_warm()
    stopped = {task: chain.job.pid_of(task) for task in ("score/1", "out/0")}
    for pid in stopped.values():
        kill(pid, signal.SIGSTOP)
    chain.job.until(
        "both are replaced",
        lambda view: all(told["pid"] != stopped.get(told["task"], 0) for told in view["tasks"]),
    )
    for pid in stopped.values():
        kill(pid, signal.SIGCONT)
    report = chain.finish_exactly()
    assert {recovery["task"] for recovery in report["recoveries"]} >= set(stopped)


SETTINGS = {
    "a pool of standbys, over tcp": (("--standbys", "2"), {"transport": "tcp"}),
    "no standbys": (("--standbys", "0"), {}),
    "sharing depth 1": (("--sharing-depth", "1"), {}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_kills_under_other_settings(fraud: Fraud, name: str) -> None:
    arguments, config = SETTINGS[name]
    tasks = ("score/0", "shop/0", "ledger/0", "out/0")
    chain = fraud(5.5, *arguments, *kills(*(f"{task}@{2.0 + 0.8 * turn}" for turn, task in enumerate(tasks))), **config)
    report = chain.finish_exactly()
    assert [recovery["task"] for recovery in report["recoveries"]] == list(tasks)
    if name == "no standbys":
        assert {recovery["mode"] for recovery in report["recoveries"]} == {"cold"}
