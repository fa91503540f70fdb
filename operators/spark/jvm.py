"""The JVM of a Spark driver, started so that none of its processes outlives the driver.

The kernel kills the JVM when the driver dies, however it dies. Spark's Python workers end when the JVM's end of their
pipe closes. The JVM keeps the driver's lock open, so that the next driver knows whether the JVM has ended.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from causal.errors import Unavailable

START_WAIT_S = 120.0
REAP_WAIT_S = 3.0
"""The time for Spark's Python workers to notice that the JVM is gone; then they are killed."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.sink.name = org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream
logger.sink.level = error
"""


class SparkJvm:
    """The JVM of one driver, which can be started once and then ended.

    Args:
        work: the directory for everything that Spark writes while it runs; it is emptied first.
        lock: the descriptor of the driver's lock, which the JVM inherits; None if drivers need no lock.
    """

    def __init__(self, work: Path, lock: int | None) -> None:
        self._lock = lock
        self._process: subprocess.Popen[bytes] | None = None
        self.work = work
        shutil.rmtree(work, ignore_errors=True)
        for directory in (work / "tmp", work / "conf", work / "local"):
            directory.mkdir(parents=True)
        (work / "conf" / "log4j2.properties").write_text(_LOGGING)

    def start(self, conf: Mapping[str, str], spark_home: Path, java_home: Path, python: str = sys.executable) -> None:
        """Start the JVM, and set the environment variables in which PySpark looks for a running gateway.

        Args:
            python: the Python interpreter of executors.
        Raises:
            Unavailable: the JVM ended or did not answer; its own message is on standard error.
        """
        address = self.work / "gateway"
        submit = [str(spark_home / "bin" / "spark-submit")]
        for key, value in conf.items():
            submit += ["--conf", f"{key}={value}"]
        environment = {
            "SPARK_CONF_DIR": str(self.work / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData -XX:TieredStopAtLevel=1",
            **os.environ,
            "SPARK_HOME": str(spark_home),
            "SPARK_LOCAL_DIRS": str(self.work / "local"),
            "SPARK_CONNECT_MODE": "0",
            "JAVA_HOME": str(java_home),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address),
        }
        for name in ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
            os.environ[name] = environment[name]
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._process = subprocess.Popen(
            [*submit, "pyspark-shell"],
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno(),
            env=environment,
            pass_fds=[] if self._lock is None else [self._lock],
            preexec_fn=die_with(os.getpid()),
        )
        deadline = time.monotonic() + START_WAIT_S
        while not address.exists():
            if not self.running:
                raise Unavailable(f"Spark's JVM exited with status {self._process.returncode} during its start")
            if time.monotonic() > deadline:
                raise Unavailable(f"Spark's JVM did not start within {START_WAIT_S:g} s")
            time.sleep(0.02)
        gateway = address.read_bytes()
        port, length = struct.unpack(">ii", gateway[:8])
        os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = gateway[8 : 8 + length].decode()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self) -> None:
        """Kill the JVM, and wait until all processes that it started have ended.

        Spark's checkpoint survives the kill at any moment.
        """
        if self._process is not None:
            self._process.kill()
        patience = time.monotonic() + REAP_WAIT_S
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid:
                continue
            if time.monotonic() > patience:
                for child in _children():
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        shutil.rmtree(self.work, ignore_errors=True)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def die_with(parent: int) -> Callable[[], None]:
    """Return a function that a child calls before it executes another program, so that it dies with its parent."""
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the call above took effect
            os._exit(1)

    return prepare


def _children() -> list[int]:
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
