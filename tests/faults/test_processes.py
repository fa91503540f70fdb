"""The processes around the tasks die: supervisor, agent, `causal run` itself, and all of a job together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.harness.processes import kill
from tests.faults.conftest import POOL, HeldChain
from tests.faults.job import causal

StartChain = Callable[..., HeldChain]

SERVERS = {
    "supervisor": ("standby.daemon",),
    "agent": ("standby.agent",),
    "both": ("standby.daemon", "standby.agent"),
}


def test_who_decides_and_who_starts_may_die_right_before_a_task(start_chain: StartChain) -> None:
    chain = start_chain()
    for modules in SERVERS.values():
        chain.job.until_warm()
        task = chain.job.pid_of("score/0")
        for pid in (*(chain.job.server(module) for module in modules), task):
            kill(pid)
        chain.job.until_replaced(task)
    report = chain.finish_exactly()
    assert [recovery["task"] for recovery in report["recoveries"]] == ["score/0"] * len(SERVERS)


def test_every_process_dies_twice_and_the_job_is_resumed_twice(start_chain: StartChain) -> None:
    chain = start_chain(*POOL)
    chain.job.until_warm(records=200)
    chain.job.kill_everything()
    chain.job.start("--resume")
    chain.job.until_warm(records=200, checkpoints=2)
    chain.job.kill_everything()
    chain.job.start("--resume")
    chain.finish_exactly()


@pytest.mark.campaign
def test_every_process_dies_before_the_first_checkpoint(start_chain: StartChain) -> None:
    chain = start_chain("--checkpoint-interval", "60")
    chain.job.until_warm(records=300, checkpoints=0)
    chain.job.kill_everything()
    chain.job.start("--resume")
    chain.finish_exactly()


@pytest.mark.campaign
def test_what_is_left_when_the_root_dies_ends_by_itself(start_chain: StartChain) -> None:
    chain = start_chain()
    chain.job.until_warm()
    kill(chain.job.root)
    chain.let_end()
    assert chain.job.start("--resume").finish() == (0, "")
    chain.assert_exact()


def test_an_interrupted_job_leaves_nothing_running_and_can_be_resumed(start_chain: StartChain) -> None:
    chain = start_chain(*POOL)
    chain.job.until_warm()
    chain.job.interrupt()
    status, said = chain.job.finish()
    assert status == 130 and len(said.splitlines()) == 1 and "--resume" in said
    chain.job.start("--resume")
    chain.finish_exactly()
    for changed, wanted in (((), (0, "has finished already")), (("--set", "parallelism=3"), (2, "has finished, and "))):
        status, said = causal(chain.job.directory, "run", *chain.job.arguments, "--resume", *changed)
        assert status == wanted[0] and wanted[1] in said
