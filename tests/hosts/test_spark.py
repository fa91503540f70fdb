"""Executors of a real Spark cluster as hosts: they are killed and decommissioned, and every row is there once.

By default there is one executor, and Spark's master and worker are threads of its driver, on one host.  Campaigns have
two, and a master and workers of their own on a host each, which are four JVMs more.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: no cluster to test with")

from benchmarks.harness.processes import children
from benchmarks.hosts.counted import PIPELINE
from examples.hosts.cluster import CORES, EXECUTOR, SparkCluster, commands
from examples.hosts.job import HOME, ClusterJob
from examples.hosts.network import Network
from tests.faults.job import wait_for
from tests.hosts.counted import arguments_of, check_rows
from tests.members import members
from tests.spark.conftest import SHORT_LIVED

UP_S, WAIT_S = 600.0, 120.0
AGENTS = ("spark-1", "spark-2")
SLOTS = 10
"""Room at home for each task and a standby of it, where there is one executor."""
DRIVER = "deploy.spark.driver"
COUNT = 4_000
"""The elements of each partition: they flow all the time, and the test ends when it wants to."""


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network((HOME, "a", "b"))
    yield network
    network.close()


def incarnations(job: ClusterJob) -> dict[str, int]:
    return {task["task"]: task["incarnation"] for task in job.view()["tasks"]}


class LocalCluster(SparkCluster):
    """A master and one worker that Spark's driver has in itself, and which end with it."""

    def __init__(self, network: Network, directory: Path, master: str, workers: Sequence[str]) -> None:
        self.url = f"local-cluster[1,{CORES},600]"
        self._state = directory.parent / "job"

    def executor_of(self, agent: str) -> tuple[int, str] | None:
        """Return the process of the executor in which an agent runs, and the host that it is on; None while there is
        none.
        """
        driver = next(pid for pid, command in commands() if DRIVER in command and str(self._state) in command)
        words = dict(commands())
        for executor in (pid for pid in below(driver) if EXECUTOR in words.get(pid, "")):
            if any(f"/{agent}.key" in words.get(pid, "") for pid in below(executor)):
                return executor, HOME
        return None

    def close(self) -> None:
        """Nothing of it runs on its own."""


def below(pid: int) -> list[int]:
    """Return a process and all below it, parents first."""
    pids = [pid]
    for parent in pids:
        pids += children(parent)
    return pids


@pytest.fixture
def cluster(tmp_path: Path, network: Network, request: pytest.FixtureRequest) -> Iterator[SparkCluster]:
    (tmp_path / "spark").mkdir()
    kind: type[SparkCluster] = getattr(request, "param", SparkCluster)
    cluster = kind(network, tmp_path / "spark", HOME, ("a", "b"))
    yield cluster
    cluster.close()
    wait_for("nothing is left on any host", lambda: not any(map(network.processes, (HOME, "a", "b"))), WAIT_S)


@pytest.fixture
def job(tmp_path: Path, network: Network, cluster: SparkCluster) -> Iterator[ClusterJob]:
    """A job that runs, with all agents and standbys, and whose rows are complete when the test has ended."""
    local = isinstance(cluster, LocalCluster)
    job = (
        ClusterJob(tmp_path, network, cluster, 1, SLOTS)
        if local
        else ClusterJob(tmp_path, network, cluster, len(AGENTS))
    )
    try:
        options = [*arguments_of(job, COUNT, host_timeout_ms=15_000), "--set", f"pin={HOME}"]
        confs = (f"spark.executor.cores={CORES}", f"spark.executor.extraJavaOptions={SHORT_LIVED}")
        process = job.run(PIPELINE, *options, *(part for conf in confs for part in ("--spark-conf", conf)))
        job.await_("executors with all tasks and standbys", job.complete, UP_S)
        yield job
        (tmp_path / "gate").touch()
        assert process.wait(WAIT_S) == 0, job.said()
        check_rows(job, COUNT)
    finally:
        job.close()


@pytest.mark.parametrize("cluster", members([LocalCluster, SparkCluster]), indirect=True)
@pytest.mark.timeout(1500)
def test_the_tasks_of_an_executor_that_is_killed_are_taken_over(job: ClusterJob, cluster: SparkCluster) -> None:
    before, killed = incarnations(job), max(AGENTS, key=lambda name: len(job.host(name).get("tasks", ())))
    moved = job.host(killed)["tasks"]
    assert moved
    executor = cluster.executor_of(killed)
    assert executor is not None
    os.kill(executor[0], signal.SIGKILL)
    job.await_("its tasks are live again", lambda: job.recovered(1), WAIT_S)
    job.await_("Spark has started another executor", job.complete, UP_S)
    assert job.host(killed)["incarnation"] == 2, "what the executor leaves behind does not join again"
    assert incarnations(job) == {task: number + (task in moved) for task, number in before.items()}


@pytest.mark.campaign
@pytest.mark.timeout(1500)
def test_all_executors_end_with_the_driver_and_the_next_one_has_others(job: ClusterJob) -> None:
    drivers = [pid for pid, command in commands() if DRIVER in command and str(job.state) in command]
    os.kill(drivers[0], signal.SIGKILL)
    job.await_("all executors end with it", lambda: job.lost() >= len(AGENTS), WAIT_S)
    job.await_("the next driver has others", job.complete, UP_S)


@pytest.mark.campaign
@pytest.mark.timeout(1500)
def test_a_decommissioned_executor_is_left_after_its_tasks_have_moved(job: ClusterJob, cluster: SparkCluster) -> None:
    before, left = incarnations(job), max(AGENTS, key=lambda name: len(job.host(name)["tasks"]))
    moved = job.host(left)["tasks"]
    executor = cluster.executor_of(left)
    assert executor is not None
    os.kill(cluster.worker(executor[1]), signal.SIGPWR)
    job.await_("the host is drained and left", lambda: job.host(left)["state"] == "lost", WAIT_S)
    assert incarnations(job) == {task: number + (task in moved) for task, number in before.items()}
    assert job.view()["host_losses"] == [], "a host that was drained before it ended has left, and is no loss"
