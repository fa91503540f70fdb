"""The processes around the tasks die: supervisor, agent, `causal run` itself, and all of a job at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.torture_processes import kill
from tests.faults.conftest import FraudChain
from tests.faults.job import causal

Fraud = Callable[..., FraudChain]

SERVERS = {
    "supervisor": ("standby.daemon",),
    "agent": ("standby.agent",),
    "both": ("standby.daemon", "standby.agent"),
}


@pytest.mark.parametrize("name", SERVERS)
def test_who_decides_and_who_starts_may_die_right_before_a_task(fraud: Fraud, name: str) -> None:
    chain = fraud(5.0)
    chain.job.until_warm()
    task = chain.job.pid_of("score/0")
    servers = [chain.job.server(module) for module in SERVERS[name]]
    for pid in (*servers, task):
        kill(pid)
    report = chain.finish_exactly()
    assert [recovery["task"] for recovery in report["recoveries"]] == ["score/0"]


def test_who_decides_dies_while_a_task_recovers(fraud: Fraud) -> None:
    chain = fraud(5.5)
    chain.job.until_warm()
    assert causal(chain.job.directory, "kill", "totals/0", "--state-dir", str(chain.job.state)) == (0, "")
    chain.job.until("the failure is known", lambda view: view["recoveries"] or None)
    kill(chain.job.server("standby.daemon"))
    kill(chain.job.pid_of("out/0"))
    report = chain.finish_exactly()
    assert {recovery["task"] for recovery in report["recoveries"]} == {"totals/0", "out/0"}


def test_every_process_dies_twice_and_the_job_is_resumed_twice(fraud: Fraud) -> None:
    chain = fraud(6.0)
    chain.job.until_warm(records=500)
    chain.job.kill_everything()
    chain.job.start("--resume")
    chain.job.until_warm(records=500, checkpoints=2)
    chain.job.kill_everything()
    chain.job.start("--resume")
    chain.finish_exactly()


def test_every_process_dies_before_the_first_checkpoint(fraud: Fraud) -> None:
    chain = fraud(4.0, "--checkpoint-interval", "60")
    chain.job.until_warm(records=300, checkpoints=0)
    chain.job.kill_everything()
    chain.job.start("--resume")
    chain.finish_exactly()


def test_what_is_left_when_the_root_dies_ends_by_itself(fraud: Fraud) -> None:
    chain = fraud(4.0)
    chain.job.until_warm()
    kill(chain.job.root)
    assert chain.job.start("--resume").finish() == (0, "")
    chain.assert_exact()


def test_an_interrupted_job_leaves_nothing_running_and_goes_on_when_resumed(fraud: Fraud) -> None:
    chain = fraud(4.0)
    chain.job.until_warm()
    chain.job.interrupt()
    status, said = chain.job.finish()
    assert status == 130 and len(said.splitlines()) == 1 and "--resume" in said
    chain.job.start("--resume")
    chain.finish_exactly()
    status, said = causal(chain.job.directory, "run", *chain.job.arguments, "--resume")
    assert status == 0 and "has finished already" in said
