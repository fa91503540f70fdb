"""Connections are cut while both ends live: they resume where they were, without a failure and without a gap."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.harness.processes import kill
from tests.faults.conftest import HeldChain
from tests.faults.job import Job
from tests.members import members
from tests.soak.cut import Link, cut, links

StartChain = Callable[..., HeldChain]


def links_of(job: Job, task: str) -> list[Link]:
    try:
        return links(job.pid_of(task), job.runtime)
    except PermissionError as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize("transport", members(["tcp", "ipc"], "ipc"))
def test_cut_connections_resume_and_no_task_recovers(start_chain: StartChain, transport: str) -> None:
    """Cuts those to neighbours and to the supervisor: checkpoints show that both are used again."""
    chain = start_chain("--checkpoint-interval", "0.3", transport=transport)
    done = chain.job.until_warm()["checkpoint"]["count"]
    pids = {task: chain.job.pid_of(task) for task in ("shop/0", "score/0", "ledger/0", "out/0")}
    for task in pids:
        connections = links_of(chain.job, task)
        data = [link for link in connections if not link.control]
        assert data and all(link.tcp == (transport == "tcp") for link in data)
        assert len(connections) == len(data) + 2, "two connections to the supervisor: of the loop, and of its pulse"
        cuts = [cut(link) for link in connections]
        assert any(cuts)  # an end may have gone with the other one
        done = chain.until_checkpoint(done)
    assert {task: chain.job.pid_of(task) for task in pids} == pids
    assert chain.finish_exactly()["recoveries"] == []


def test_a_task_dies_while_its_neighbours_are_cut_off(start_chain: StartChain) -> None:
    chain = start_chain(transport="tcp")
    chain.job.until_warm()
    dying = chain.job.pid_of("totals/0")
    for task in ("score/0", "ledger/0"):
        for link in links_of(chain.job, task):
            cut(link)
    kill(dying)
    report = chain.finish_exactly()
    assert [recovery["task"] for recovery in report["recoveries"]] == ["totals/0"]
