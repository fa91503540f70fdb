"""Standbys die too: with their primary, right before it, and right after the order to take over."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.harness.processes import kill
from tests.faults.conftest import HeldChain
from tests.faults.job import Job

StartChain = Callable[..., HeldChain]


def standby_of(job: Job, task: str) -> int:
    """Return the process that holds the task's state and waits."""
    view = job.until_warm()
    [first] = [process["pid"] for process in view["processes"] if process["standby_of"] == task][:1]
    pid: int = first
    return pid


ORDERS = (
    ("totals/0", "the standby a moment before", (("standby", 0.005), ("primary", 0.0))),
    ("totals/0", "together", (("primary", 0.0), ("standby", 0.0))),
    ("out/0", "the standby while it takes over", (("primary", 0.012), ("standby", 0.0))),
    ("out/0", "the standby while it replays", (("primary", 0.06), ("standby", 0.0))),
)


def test_a_standby_dies_with_its_primary(start_chain: StartChain) -> None:
    chain = start_chain()
    job = chain.job
    for task, _, order in ORDERS:
        dying = {"standby": standby_of(job, task), "primary": job.pid_of(task)}
        for which, wait_s in order:
            kill(dying[which])
            time.sleep(wait_s)
        job.until_replaced(*dying.values())
        job.pid_of(task)
    recoveries = chain.finish_exactly()["recoveries"]
    # Where the successor had begun already, its end is a failure of its own.
    assert len(ORDERS) <= len(recoveries) <= len(ORDERS) + 3
    assert {recovery["task"] for recovery in recoveries} == {"totals/0", "out/0"}


def test_a_pool_that_dies_as_a_whole_is_filled_again(start_chain: StartChain) -> None:
    chain = start_chain("--standbys", "2")
    view = chain.job.until_warm()
    idle = [process["pid"] for process in view["processes"] if not process["task"]]
    tasks = [chain.job.pid_of(task) for task in ("score/0", "ledger/0")]
    assert idle
    for pid in (*idle, *tasks):
        kill(pid)
    chain.job.until_replaced(*tasks)
    report = chain.finish_exactly()
    assert {recovery["task"] for recovery in report["recoveries"]} == {"score/0", "ledger/0"}
