"""The supervisor is killed at many moments of a recovery, and a second one is refused: the data never notices."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from benchmarks.harness.processes import AGENT, SUPERVISOR, kill, server
from tests.faults.conftest import POOL, HeldChain
from tests.faults.job import WAIT_S, Job, environment, wait_for
from tests.members import campaign

StartChain = Callable[..., HeldChain]

MOMENTS_S = (0.0, 0.004, 0.01, 0.02, 0.04, 0.08, 0.2)
"""Times after the kill of a task: before it is known, while it is decided, ordered, collected, replayed, and after."""


def until_another(job: Job, dead: int) -> None:
    wait_for("there is another supervisor", lambda: server(job.root, SUPERVISOR) not in (None, dead))


@pytest.mark.parametrize(
    ("task", "moments_s"),
    [campaign("score/0", MOMENTS_S, id="score"), pytest.param("out/0", MOMENTS_S[::3], id="out")],
)
def test_the_supervisor_dies_at_any_moment_of_a_recovery(
    start_chain: StartChain, task: str, moments_s: tuple[float, ...]
) -> None:
    chain = start_chain("--checkpoint-interval", "0.3")
    job = chain.job
    view = job.until_warm()
    done = view["checkpoint"]["count"]
    others = {entry["task"]: entry["pid"] for entry in view["tasks"] if entry["task"] != task}
    for moment_s in moments_s:
        supervisor, dying = job.server(SUPERVISOR), job.pid_of(task)
        kill(dying)
        time.sleep(moment_s)
        kill(supervisor)
        until_another(job, supervisor)
        job.until_replaced(dying)
        job.pid_of(task)
        done = chain.until_checkpoint(done)
    assert {name: job.pid_of(name) for name in others} == others, "no other may have stopped"
    report = chain.finish_exactly()
    assert [recovery["task"] for recovery in report["recoveries"]] == [task] * len(moments_s)


def test_a_second_one_of_the_same_job_is_refused(start_chain: StartChain) -> None:
    chain = start_chain(*POOL)
    chain.job.until_warm()
    for module in (SUPERVISOR, AGENT):
        first = chain.job.server(module)
        second = subprocess.run(
            [sys.executable, "-m", module, str(chain.job.state)],
            cwd=chain.job.directory,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert second.returncode == 2 and len(second.stderr.splitlines()) == 1, second.stderr
        assert "another" in second.stderr and str(chain.job.state) in second.stderr
        assert chain.job.server(module) == first
    assert chain.finish_exactly()["recoveries"] == []
