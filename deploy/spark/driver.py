"""The driver of a job's agents in a Spark cluster: `python -m deploy.spark.driver JOB_DIRECTORY`, from `causal run`.

The driver runs a Spark application whose only work is one single-task job per agent.  When the driver ends, all
executors end, and the next driver starts an application with new executors.  In between, the job has only those hosts
that join independently.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from causal.config import JobConfig
from causal.errors import CausalError, PipelineError, Unavailable
from causal.network.curve import new_key
from causal.network.roster import KeyPair, read_rosters, save_members
from causal.process import processlog
from deploy.jobs.jobdirectory import SPARK
from deploy.jobs.latest_view import latest
from deploy.launching.host_agent import SLOTS_PER_CORE
from deploy.spark import executor
from deploy.spark.attempts import (
    REFUSED,
    AgentState,
    Attempts,
    Cancel,
    Decommissioned,
    Drain,
    Effect,
    Emptied,
    Ended,
    Event,
    Fail,
    Renew,
    Say,
    Submit,
    Tick,
)
from deploy.spark.options import agent_names
from operators.code_archive.archive import runtime_version
from operators.spark.java import find_java, java_home
from operators.spark.jvm import SparkJvm
from standby.host.parentage import die_with_parent
from standby.network.control import ask
from standby.network.gate import EXECUTORS_ROSTER, address_of, rosters_of
from standby.supervision.job_view import HostView

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.resource import ResourceProfile

LOOK_S = 1.0
"""The interval at which the driver checks where agents run, and whether Spark is removing their executors."""

ANSWER_S = 5.0
JOIN_S = 20.0
"""The time after which a line reports that an agent runs and has not joined."""

CORES = 2
"""The number of cores per executor, unless the user's configuration specifies it."""

CHUNK_MAX = 400
_REASONS = (
    r"(\[PYTHON_VERSION_MISMATCH\].*)",
    r"(Cannot run program.*)",
    r"Reason: (.*)",
    r"most recent failure: (.*)",
)
"""Patterns for the parts of Spark's errors that describe the cause, with the most precise first."""
_WRONG = re.compile(r"PYTHON_VERSION_MISMATCH|Cannot run program")
"""Matches failures that would recur at another attempt."""

_log = logging.getLogger("deploy.spark")


def cores_of(config: JobConfig) -> int:
    """Return the number of cores of each executor, all of which its agent uses, so that no other agent is placed
    there.
    """
    return int(config.spark_conf.get("spark.executor.cores", CORES))


def configuration(config: JobConfig, work: Path) -> dict[str, str]:
    """Return Spark's configuration, with a small executor per agent.

    The user's entries take precedence, except over entries that are required here.
    """
    address, _ = address_of(config.listen)
    return {
        "spark.app.name": f"causal-{config.name}",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": " ".join(
            [
                f"-Djava.io.tmpdir={work / 'tmp'}",
                f"-Dlog4j2.configurationFile={work / 'conf' / 'log4j2.properties'}",
                "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
            ]
        ),
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": "2g",  # the processes of an agent are outside the JVM
        "spark.executor.instances": str(config.agents),
        "spark.cores.max": str(config.agents * cores_of(config)),
        "spark.executor.failuresValidityInterval": "1h",  # an application that runs for months loses many executors
        "spark.decommission.enabled": "true",
        **config.spark_conf,
        "spark.master": config.on,
        "spark.executor.cores": str(cores_of(config)),
        "spark.dynamicAllocation.enabled": "false",
        "spark.speculation": "false",
        "spark.task.maxFailures": "1",  # a Spark task that is repeated would use a key that has been replaced
    }


class Driver:
    """The driver for the agents of one job."""

    def __init__(self, job: Path, config: JobConfig) -> None:
        self._job = job
        self._config = config
        self._rosters = rosters_of(config, job)
        self._attempts = Attempts(agent_names(config.agents))
        self._keys: dict[str, KeyPair] = {}
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        """The events that wait to be processed by the loop; None ends the loop."""
        self._jvm = SparkJvm(job / SPARK / "work", None)
        self._hinted: set[tuple[str, int]] = set()

    def run(self) -> None:
        """Keep one agent per name running in the cluster until SIGTERM arrives.

        Raises:
            PipelineError: no agent can work in the cluster.
            Unavailable: Spark's JVM has ended.
        """
        for name in self._attempts.agents:
            self._keys[name] = new_key(name)
        self._save_keys()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._start_jvm()
        from pyspark import SparkContext
        from pyspark.cloudpickle import register_pickle_by_value
        from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

        register_pickle_by_value(executor)
        try:
            self._context: SparkContext = SparkContext.getOrCreate()
        except Exception as problem:  # the JVM or the cluster may cause any error
            raise self._ended(reason_of(problem)) from None
        request = TaskResourceRequests().cpus(cores_of(self._config))
        self._profile: ResourceProfile = ResourceProfileBuilder().require(request).build
        _log.info("Spark application %s at %s", self._context.applicationId, self._config.on)
        self._serve()
        self._context.stop()

    def close(self) -> None:
        """End the JVM, and with it the application and all of its executors."""
        self._jvm.end()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._events.put(None)

    def _start_jvm(self) -> None:
        import pyspark

        config = self._config
        address, _ = address_of(config.listen)
        os.environ.setdefault("SPARK_LOCAL_IP", address)
        python = os.environ.get("PYSPARK_PYTHON") or config.spark_conf.get("spark.pyspark.python") or sys.executable
        home = Path(pyspark.__file__).resolve().parent
        work = self._jvm.work
        self._jvm.start(configuration(config, work), home, java_home(find_java(), work), python)

    def _serve(self) -> None:
        look_s = 0.0
        while True:
            self._take(Tick())
            next_ns = self._attempts.next_ns()
            wait_s = LOOK_S if next_ns is None else min(LOOK_S, max(0.0, next_ns / 1e9 - time.monotonic()))
            try:
                event = self._events.get(timeout=wait_s)
            except queue.Empty:
                pass
            else:
                if event is None:
                    return
                self._take(event)
            if time.monotonic() >= look_s:
                look_s = time.monotonic() + LOOK_S
                self._look()

    def _take(self, event: Event) -> None:
        for effect in self._attempts.handle(event, time.monotonic_ns()):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Submit(agent, attempt):
                threading.Thread(target=self._attempt, args=(agent, attempt), name=agent, daemon=True).start()
            case Renew(agent):
                self._keys[agent] = new_key(agent)
                self._save_keys()
            case Drain(agent):
                answer = ask(self._runtime, "drain", {"host": agent, "draining": True}, ANSWER_S)
                if answer is None or not answer.get("ok"):
                    _log.warning("%s cannot be drained: %s", agent, (answer or {}).get("error", "no answer"))
            case Cancel(agent):
                self._context.cancelJobGroup(group_of(agent))
            case Say(line):
                _log.info("%s", line)
            case Fail(line):
                raise PipelineError(line)

    def _ended(self, reason: str) -> CausalError:
        """Return the error for an application that has ended.  A restart can help only if an agent has ever joined."""
        line = f"the Spark application at {self._config.on} has ended: {reason}; see {self._job / 'logs' / 'spark.log'}"
        has_run = any(host.host in self._attempts.agents for host in self._hosts)
        return Unavailable(line) if has_run else PipelineError(line)

    @property
    def _hosts(self) -> Sequence[HostView]:
        """The hosts of the job, according to its supervisor."""
        view = latest(self._job)
        return () if view is None else view.hosts

    @property
    def _runtime(self) -> str:
        return (self._job / "runtime").read_text().strip()

    def _save_keys(self) -> None:
        save_members(self._job / EXECUTORS_ROSTER, self._keys.values())

    def _attempt(self, name: str, attempt: int) -> None:
        """Run one agent as a Spark job until it ends, on a separate thread, which Spark's API requires for each job."""
        config, key = self._config, self._keys[name]
        assignment = {
            "name": name,
            "public": key.public,
            "secret": key.secret,
            "join": config.listen,
            "roster": read_rosters(self._rosters)[1],
            "slots": cores_of(config) * SLOTS_PER_CORE,
            "version": runtime_version(),
        }
        try:
            self._context.setJobGroup(group_of(name), f"{config.name}: {name}, attempt {attempt}", True)
            partition = self._context.parallelize([json.dumps(assignment)], 1).withResources(self._profile)
            answer = json.loads(partition.mapPartitions(executor.host_agent).collect()[0])
            end = Ended(name, answer["status"], str(answer["line"])[:CHUNK_MAX])
        except Exception as problem:  # Spark may raise any error if the executor is lost or never started
            line = reason_of(problem)
            end = Ended(name, REFUSED if _WRONG.search(str(problem)) else None, line)
        self._events.put(end)

    def _look(self) -> None:
        """Notice executors that are being decommissioned, hosts that have been drained, and agents that do not join."""
        if not self._jvm.running or self._scala.isStopped():
            raise self._ended("it was removed, or the master cannot be reached")
        hosts = {host.host: host for host in self._hosts}
        for agent in self._attempts.agents.values():
            host = hosts.get(agent.name)
            if agent.state is AgentState.SUBMITTED:
                where = self._executor_of(agent.name)
                if where is not None and self._leaves(where):
                    self._take(Decommissioned(agent.name))
                elif where is not None:
                    self._hint(agent.name, agent.attempt, agent.since_ns, host)
            elif agent.state is AgentState.DRAINING and is_empty(host):
                self._take(Emptied(agent.name))

    def _hint(self, name: str, attempt: int, since_ns: int, host: HostView | None) -> None:
        joined = host is not None and host.state != "lost"
        if joined or time.monotonic_ns() - since_ns < JOIN_S * 1e9 or (name, attempt) in self._hinted:
            return
        self._hinted.add((name, attempt))
        _log.warning(
            "%s runs in an executor and has not joined; if it cannot reach %s, use --listen with another address",
            name,
            self._config.listen,
        )

    def _executor_of(self, name: str) -> str | None:
        """Return the ID of the executor that runs an agent; None while the agent's job waits for an executor."""
        tracker = self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(group_of(name)):
            info = tracker.getJobInfo(job)
            if info is None or info.status != "RUNNING":
                continue
            for stage in info.stageIds:
                tasks = self._scala.statusStore().taskList(stage, 0, 1)
                if tasks.size():
                    return str(tasks.apply(0).executorId())
        return None

    def _leaves(self, executor_id: str) -> bool:
        """Return whether Spark has announced that it will remove the executor."""
        return bool(self._scala.taskScheduler().getExecutorDecommissionState(executor_id).isDefined())

    @property
    def _scala(self) -> Any:
        """Spark's Scala context, which has information about executors that is not available in Python."""
        return self._context._jsc.sc()


def group_of(agent: str) -> str:
    """Return the job group that identifies an agent's Spark job, for example in order to cancel it."""
    return f"causal-{agent}"


def is_empty(host: HostView | None) -> bool:
    """Return whether a host has no process of the job."""
    return host is None or host.state == "lost" or not (host.tasks or host.standbys)


def reason_of(problem: Exception) -> str:
    """Return the part of a Spark error that describes the cause, on one line."""
    text = str(problem)
    stated = [match[1] for match in (re.search(pattern, text) for pattern in _REASONS) if match is not None]
    lines = [*stated, *text.splitlines(), type(problem).__name__]
    return next(line.strip() for line in lines if line.strip())[:CHUNK_MAX]


def main(argv: list[str]) -> int:
    """Run the driver of one job.

    Returns: 0 after SIGTERM, 2 for an error that would recur after a restart, otherwise 1.
    """
    if len(argv) != 1:
        print("usage: python -m deploy.spark.driver JOB_DIRECTORY", file=sys.stderr)
        return 2
    die_with_parent()
    job = Path(argv[0]).resolve()
    processlog.begin(job / "logs" / "spark.log", lambda: "spark")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # below this level, py4j logs a line for each command
    driver = None
    try:
        driver = Driver(job, JobConfig.load(job))
        driver.run()
        status = 0
    except CausalError as problem:
        _log.error("%s", problem)
        status = 2 if isinstance(problem, PipelineError) else 1
    finally:
        # A py4j thread may be waiting for an answer, and would only log a traceback when the JVM ends.
        logging.disable(logging.CRITICAL)
        if driver is not None:
            driver.close()
    return status


if __name__ == "__main__":
    ended = main(sys.argv[1:])
    os._exit(ended)  # some threads still wait for Spark jobs that have ended
