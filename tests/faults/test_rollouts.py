"""A pod with another image: the command line of the manifest, where an image is what the pipeline's directory holds."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.harness.processes import kill, of_job
from benchmarks.harness.written import records_in
from standby.host.processes import kill_marked
from tests.faults.job import WAIT_S, environment, wait_for
from tests.members import campaign
from tests.unit.deploy.manifests import STATE, shell_line

COUNT = 20_000
PIPELINE = f"""
from pathlib import Path
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

def of_version(row):
    if VERSION == 2 and Path("mistake").exists():
        raise ValueError("a mistake")
    return *row, VERSION

gate = Path("gate")
pipeline = Pipeline("shop")
numbers = GeneratedSource(lambda p, i: i % 7, count={COUNT}, rate=100_000 if gate.exists() else 100)
orders = pipeline.source("orders", hold_end(numbers, str(gate)))
orders.key_by(lambda shop: shop).count("count").map("versions", of_version).sink("out", SqliteSink("out.db"))
"""


class Volume:
    """A directory with what a pod writes, and the pods that have it one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "job"

    def start(self, version: int) -> subprocess.Popen[str]:
        """Start a pod with the image of this version of the pipeline."""
        image = self.directory / "pipeline.py"
        image.write_text(f"VERSION = {version}\n{PIPELINE}")
        line = shell_line("job").replace("/job/pipeline.py", str(image)).replace(STATE, str(self.state))
        line = line.replace("causal run", f"{sys.executable} -m deploy run")
        line = line.replace("--metrics-listen 0.0.0.0:9464", "")
        return subprocess.Popen(
            ["sh", "-c", line], cwd=self.directory, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def rows(self) -> list[tuple[int, int, int]]:
        """Return (shop, count, version) of each row."""
        path = self.directory / "out.db"
        with suppress(sqlite3.OperationalError):  # the sink has not begun
            return sorted(map(tuple, records_in(path))) if path.exists() else []
        return []

    def savepoints(self) -> list[str]:
        """Return the names of the savepoints that the job keeps."""
        return sorted(path.name for path in self.state.glob("savepoints/*"))

    def of_version(self, version: int) -> int:
        """Return how many rows this version of the pipeline has written."""
        return sum(row[2] == version for row in self.rows())

    def until_more(self, pod: subprocess.Popen[str], version: int) -> None:
        """Wait for more rows of a version, which this pod writes."""
        enough = self.of_version(version) + 50
        wait_for(f"rows of version {version}", lambda: pod.poll() is not None or self.of_version(version) > enough)
        assert pod.poll() is None, pod.communicate()


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    yield Volume(tmp_path)
    kill_marked((tmp_path / "job").resolve(), 5.0)


def ended(pod: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a container; returns its exit status and its output."""
    printed, said = pod.communicate(timeout=WAIT_S)
    return pod.returncode, printed + said


def terminated(pod: subprocess.Popen[str]) -> str:
    """End a pod as the kubelet does, in time; returns its output."""
    os.kill(pod.pid, signal.SIGTERM)
    status, said = ended(pod)
    assert status == 0 and "stopped at savepoint" in said, said
    return said


@pytest.mark.parametrize("fails", [True, campaign(False)])
def test_an_earlier_image_withdraws_the_rows_of_the_later_one_and_a_restart_withdraws_nothing(
    volume: Volume, fails: bool
) -> None:
    for _ in range(2):  # the second pod is the first one on another node
        first = volume.start(1)
        volume.until_more(first, 1)
        assert "upgrade" not in terminated(first)
        assert not volume.savepoints(), "a restart keeps none"

    second = volume.start(2)
    volume.until_more(second, 2)
    if fails:
        (volume.directory / "mistake").touch()
        assert ended(second)[0] == 1
        status, said = ended(volume.start(2))  # the kubelet restarts the container
        assert status == 1 and "a mistake" in said, said
        status, said = ended(volume.start(3))
        assert status == 2 and "pipeline.py changed since this run started" in said, "no upgrade after a failure"
    else:
        assert "this is an upgrade" in terminated(second)
    assert len(volume.savepoints()) == 1
    later = volume.of_version(2)

    undone = volume.start(1)
    volume.until_more(undone, 1)
    assert not volume.of_version(2)
    for pid in of_job(volume.state.resolve()):  # the node is lost
        kill(pid)
    _, said = ended(undone)
    assert f"; {later:,} rows written since then are withdrawn" in said

    (volume.directory / "gate").touch()
    again = volume.start(1)
    status, said = ended(again)
    assert status == 0 and "rolled back to savepoint" not in said, said
    assert volume.rows() == sorted((shop, n + 1, 1) for shop in range(7) for n in range(len(range(shop, COUNT, 7))))
