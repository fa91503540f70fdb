"""Tests with a real Spark: a driver in a process of its own, which they may kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.harness.processes import children
from operators.spark import daemon as spark_daemon

ROOT = Path(__file__).parents[2]
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xmn256m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""The options of each JVM under test, which lives for seconds: a fifth less CPU until Spark is up.

A compiler that optimises, a search for garbage in what was loaded, and a proof that Spark's own classes are sound would
only take the processor from it.
"""

os.environ.setdefault("JAVA_TOOL_OPTIONS", SHORT_LIVED)

WAIT_S = 240.0


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: starts a Spark driver; skipped where PySpark is not installed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [package for package in ("pyspark", "pyarrow") if find_spec(package) is None]
    if missing:
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} not installed: no Spark to test with"))


def eventually(condition: Callable[[], object], what: str, within_s: float = WAIT_S) -> None:
    """Wait until `condition()` holds; fail naming `what` did not come."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.005)


class Driver:
    """One start of a driver, in a session of its own so that every process it starts can be found."""

    def __init__(self, job: Path, source: str, errors: Path, environment: dict[str, str]) -> None:
        self.errors = errors
        elsewhere = errors.parent / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        with open(errors, "ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "operators.spark.driver", str(job), source],
                stderr=file,
                stdout=file,
                cwd=elsewhere,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
                start_new_session=True,
            )

    def members(self) -> dict[int, str]:
        """Return the living processes of the driver's session, with their command lines."""
        commands = {}
        for directory in Path("/proc").iterdir():
            if directory.name.isdecimal():
                try:
                    fields = (directory / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[3]) == self.process.pid and fields[0] not in "ZX":
                        commands[int(directory.name)] = (directory / "cmdline").read_text().replace("\0", " ")
                except (FileNotFoundError, ProcessLookupError):
                    continue
        return commands

    def python_workers(self) -> list[int]:
        """Processes in which Spark runs Python: the daemon's children, not the daemon."""
        daemons = [pid for pid, command in self.members().items() if spark_daemon.__name__ in command]
        return [pid for daemon in daemons for pid in children(daemon) if pid in daemons]

    def ended(self) -> bool:
        return self.process.poll() is not None

    def said(self) -> str:
        return self.errors.read_text(errors="replace")

    def end(self) -> None:
        for pid in [self.process.pid, *self.members()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


StartDriver = Callable[..., Driver]


@pytest.fixture
def start_driver(tmp_path: Path) -> Iterator[StartDriver]:
    """Starts drivers of a source; whatever is left of them when the test ends is killed."""
    started: list[Driver] = []

    def start(job: Path, source: str, **environment: str) -> Driver:
        started.append(Driver(job, source, tmp_path / "driver.log", environment))
        return started[-1]

    yield start
    for driver in started:
        driver.end()


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """A PATH with everything that is on the real one, but no Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for program in Path(directory).iterdir() if Path(directory).is_dir() else ():
            if program.name not in ("java", "javac") and not (tools / program.name).is_symlink():
                (tools / program.name).symlink_to(program)
    assert shutil.which("java", path=str(tools)) is None
    return str(tools)
