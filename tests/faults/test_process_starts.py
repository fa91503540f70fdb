"""The process that workers are forked from dies, and a task with it: nothing is lost, and another takes its place."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness.processes import argv, kill
from standby.host.forkserver import SERVER_SLOT
from standby.host.processes import marked
from tests.faults.conftest import HeldChain
from tests.faults.job import Job, wait_for

StartChain = Callable[..., HeldChain]


def fork_server(job: Job) -> int | None:
    """Return the job's fork server; None if there is none."""
    return next((one.pid for one in marked(job.state.resolve()) if one.slot == SERVER_SLOT), None)


def parent(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))


def assert_workers_are_the_agents_own_children(job: Job) -> None:
    """And that they look like what they are."""
    agent, server = job.server("standby.agent"), fork_server(job)
    for task in ("score/0", "out/0"):
        pid = job.pid_of(task)
        assert parent(pid) == agent and "operators.runtime.worker" in argv(pid)
        assert pid in [one.pid for one in marked(job.state.resolve()) if one.slot in argv(pid)]
    assert server is not None and parent(server) == agent


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_fork_server_that_dies_or_hangs_right_before_a_task_dies_is_replaced(
    start_chain: StartChain, number: signal.Signals
) -> None:
    chain = start_chain()
    chain.job.until_warm()
    assert_workers_are_the_agents_own_children(chain.job)
    for _ in range(2):
        server, task = fork_server(chain.job), chain.job.pid_of("score/0")
        assert server is not None and kill(server, number)
        kill(task)
        chain.job.until_replaced(task)
        chain.job.until_warm()
        wait_for("there is another server", lambda old=server: fork_server(chain.job) not in (None, old))  # type: ignore[misc]
    report = chain.finish_exactly()
    assert [recovery["task"] for recovery in report["recoveries"]] == ["score/0"] * 2


def test_the_fork_server_goes_with_its_agent_and_workers_stay(start_chain: StartChain) -> None:
    chain = start_chain()
    chain.job.until_warm()
    agent, server, task = chain.job.server("standby.agent"), fork_server(chain.job), chain.job.pid_of("score/0")
    kill(agent)
    wait_for("there is another server", lambda: fork_server(chain.job) not in (None, server))
    chain.job.until_warm()
    assert chain.job.pid_of("score/0") == task
    kill(task)
    chain.job.until_replaced(task)
    report = chain.finish_exactly()
    assert [recovery["task"] for recovery in report["recoveries"]] == ["score/0"]
