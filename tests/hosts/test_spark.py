"""Executors of a real Spark cluster as hosts: they are killed and decommissioned, and every row is there once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: no cluster to test with")

from benchmarks.hosts.counted import PIPELINE
from examples.hosts.cluster import CORES, SparkCluster, commands
from examples.hosts.job import HOME, ClusterJob
from examples.hosts.network import Network
from tests.faults.job import wait_for
from tests.hosts.counted import arguments_of, check_rows

UP_S, WAIT_S = 600.0, 120.0
AGENTS = ("spark-1", "spark-2")
DRIVER = "deploy.spark.driver"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""The options of JVMs that compile for a moment, and not for hours, as those of the cluster have them."""

COUNT = 10_000
"""The elements of each partition: they flow all the time, and the test ends when it wants to."""


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network((HOME, "a", "b"))
    yield network
    network.close()


def incarnations(job: ClusterJob) -> dict[str, int]:
    return {task["task"]: task["incarnation"] for task in job.view()["tasks"]}


@pytest.fixture
def cluster(tmp_path: Path, network: Network) -> Iterator[SparkCluster]:
    (tmp_path / "spark").mkdir()
    cluster = SparkCluster(network, tmp_path / "spark", HOME, ("a", "b"))
    yield cluster
    cluster.close()
    wait_for("nothing is left on any host", lambda: not any(map(network.processes, (HOME, "a", "b"))), WAIT_S)


@pytest.fixture
def job(tmp_path: Path, network: Network, cluster: SparkCluster) -> Iterator[ClusterJob]:
    """A job that runs, with all agents and standbys, and whose rows are complete when the test has ended."""
    job = ClusterJob(tmp_path, network, cluster, len(AGENTS))
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


@pytest.mark.timeout(1500)
def test_the_tasks_of_an_executor_that_is_killed_are_taken_over(job: ClusterJob, cluster: SparkCluster) -> None:
    before, killed = incarnations(job), max(AGENTS, key=lambda name: len(job.host(name)["tasks"]))
    moved = job.host(killed)["tasks"]
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
