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
    chain = held("--checkpoint-interval", "0.3", transport=transport)
    done = chain.job.until_warm()["checkpoint"]["count"]
    pids = {task: chain.job.pid_of(task) for task in ("score/0", "score/1", "ledger/0", "out/0")}
    for task in pids:
        data = [link for link in links_of(chain.job, task) if not link.control]
        assert data and all(link.tcp == (transport == "tcp") for link in data)
        cuts = [cut(link) for link in data]
        assert any(cuts)  # an end may have gone with the other one
        done = chain.until_checkpoint(done + 1)
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


def test_a_supervisor_that_is_cut_off_is_found_again(held: Held) -> None:
    chain = held("--checkpoint-interval", "0.3")
    done = chain.job.until_warm()["checkpoint"]["count"]
    for task in ("shop/0", "web/0", "score/0", "out/0"):
        [control] = [link for link in links_of(chain.job, task) if link.control]
        assert cut(control)
    chain.until_checkpoint(done + 2)
    assert chain.finish_exactly()["recoveries"] == []
