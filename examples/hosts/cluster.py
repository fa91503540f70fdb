"""A Spark standalone cluster in network namespaces: a master on one host, a worker on each of the others.

It is Spark's own, from the package `pyspark`, with the least memory that works: 512 MB per executor.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from examples.hosts.network import Network
from operators.spark.java import find_java, java_home

MASTER_PORT = 7077
WORKER_MEMORY = "1200m"
CORES = 4
"""The cores that each worker claims to have: agents that take them have room for four times as many processes."""

START_S = 180.0
END_S = 10.0
EXECUTOR = "CoarseGrainedExecutorBackend"
WORKER = "deploy.worker.Worker"
_QUIET = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.master.name = org.apache.spark.deploy
logger.master.level = info
"""


class SparkCluster:
    """A master and workers, started by the constructor; `close` ends them and everything below them.

    Args:
        directory: logs and scratch go in there.
        master: the host of the master.
        workers: the hosts with a worker each.
    """

    def __init__(self, network: Network, directory: Path, master: str, workers: Sequence[str]) -> None:
        import pyspark

        self._network = network
        self._directory = directory
        self._home = Path(pyspark.__file__).resolve().parent
        (directory / "conf").mkdir(parents=True)
        (directory / "conf" / "log4j2.properties").write_text(_QUIET)
        self._scala = next(self._home.glob("jars/spark-core_*.jar")).name.removeprefix("spark-core_").partition("-")[0]
        self._java = java_home(find_java(), directory)
        self.url = f"spark://{network.address(master)}:{MASTER_PORT}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._start(master, "master", "deploy.master.Master", "--port", str(MASTER_PORT), "--webui-port", "0")
            self._await("master", "I have been elected leader", 1)
            for name in workers:
                sizes = ["-c", str(CORES), "-m", WORKER_MEMORY, "-d", str(directory / f"work-{name}")]
                self._start(name, name, WORKER, "--webui-port", "0", *sizes, self.url)
            self._await("master", "Registering worker", len(workers))
        except BaseException:
            self.close()
            raise

    def _start(self, host: str, name: str, what: str, *arguments: str) -> None:
        address = self._network.address(host)
        environment = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "SPARK_SCALA_VERSION": self._scala,  # what `spark-class` would set, without a JVM of its own
            "JAVA_HOME": str(self._java),
            "SPARK_LOCAL_IP": address,
            "SPARK_CONF_DIR": str(self._directory / "conf"),
            "SPARK_LOCAL_DIRS": str(self._directory / "local"),
        }
        java = [
            str(self._java / "bin" / "java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData", "-Dspark.decommission.enabled=true", "-Dspark.worker.timeout=15",
            "-cp", f"{self._directory / 'conf'}:{self._home / 'jars'}/*", f"org.apache.spark.{what}",
        ]  # fmt: skip
        with open(self._log(name), "ab") as log:
            self._processes[name] = subprocess.Popen(
                self._network.command(host, [*java, "--host", address, *arguments]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment,
                start_new_session=True, cwd=self._directory,
            )  # fmt: skip

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _await(self, name: str, line: str, times: int) -> None:
        deadline = time.monotonic() + START_S
        while self._log(name).read_text(errors="replace").count(line) < times:
            ended = [each for each, process in self._processes.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"Spark's cluster did not start; see {self._log(ended[0] if ended else name)}")
            time.sleep(0.1)

    def executor_of(self, agent: str) -> tuple[int, str] | None:
        """Return the process of the executor in which an agent runs, and the host that it is on; None while there is
        none.
        """
        roots = {process.pid: name for name, process in self._processes.items()}
        for pid, command in commands():
            if not command.endswith((f"/{agent}.key", f"/{agent}.key ")) and f"/{agent}.key " not in command:
                continue
            executor = None
            above: int | None = pid
            while above is not None and above not in roots:
                if EXECUTOR in _command(above):
                    executor = above
                above = _parent(above)
            if executor is not None and above is not None:
                return executor, roots[above]
        return None

    def worker(self, host: str) -> int:
        """Return the process of the worker on a host, not the one with the same command line that moved it to its
        namespaces.
        """
        below = _below(self._processes[host].pid)
        return next(pid for pid in below if _command(pid).startswith(str(self._java)) and WORKER in _command(pid))

    def close(self) -> None:
        """Kill the cluster: everything that it has started is below its processes, or has ended with them."""
        left = [pid for process in self._processes.values() for pid in _below(process.pid)]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self._processes.values():
            process.wait(END_S)


def commands() -> Iterator[tuple[int, str]]:
    """Yield the processes of this machine with their command lines."""
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (command := _command(int(entry))):
            yield int(entry), command


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def _parent(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[1]) or None


def _below(pid: int) -> list[int]:
    """Return a process and all below it, parents first."""
    below = [pid]
    for parent in below:
        try:
            for thread in Path(f"/proc/{parent}/task").iterdir():
                below += [int(each) for each in (thread / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return below
