"""Connections are cut while both ends live: they resume where they were, without a failure and without a gap."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.torture_cut import Link, cut, links
from benchmarks.torture_processes import kill
from tests.faults.conftest import HeldChain
from tests.faults.job import Job

Held = Callable[..., HeldChain]


def links_of(job: Job, task: str) -> list[Link]:
    try:
        return links(job.pid_of(task), job.runtime)
    except PermissionError as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_cut_connections_resume_and_nobody_recovers(held: Held, transport: str) -> None:
    """Those to neighbours and to the supervisor: checkpoints show that both are used again."""
    chain = held("--checkpoint-interval", "0.3", transport=transport)
    done = chain.job.until_warm()["checkpoint"]["count"]
    pids = {task: chain.job.pid_of(task) for task in ("shop/0", "score/0", "ledger/0", "out/0")}
    for task in pids:
        found = links_of(chain.job, task)
        data = [link for link in found if not link.control]
        assert data and all(link.tcp == (transport == "tcp") for link in data)
        assert len(found) == len(data) + 2, "two connections to the supervisor: of the loop, and of its pulse"
        cuts = [cut(link) for link in found]
        assert any(cuts)  # an end may have gone with the other one
        done = chain.until_checkpoint(done)
    assert {task: chain.job.pid_of(task) for task in pids} == pids
    assert chain.finish_exactly()["recoveries"] == []


def test_a_task_dies_while_its_neighbours_are_cut_off(held: Held) -> None:
    chain = held(transport="tcp")
    chain.job.until_warm()
    dying = chain.job.pid_of("totals/0")
    for task in ("score/0", "ledger/0"):
        for link in links_of(chain.job, task):
            cut(link)
    kill(dying)
    report = chain.finish_exactly()
    assert [recovery["task"] for recovery in report["recoveries"]] == ["totals/0"]
