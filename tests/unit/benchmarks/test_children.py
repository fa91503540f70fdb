"""A benchmark that is ended, whatever by, leaves no process and no job behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.harness import children
from benchmarks.harness.processes import kill
from tests.members import sample


def of_this(directory: Path) -> list[int]:
    """Processes that say in their environment that their temporary files go there: a benchmark and all below it."""
    wanted = f"TMPDIR={directory}".encode()
    pids: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and wanted in environment(int(entry.name)):
            pids.append(int(entry.name))
    return pids


def environment(pid: int) -> list[bytes]:
    """Empty for a process that has ended, or belongs to another user."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


@contextmanager
def benchmark(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a benchmark whose job is up: its tasks, its supervisor and its agent are there."""
    command = [sys.executable, "-m", "benchmarks", *arguments, "--json", str(directory / "outcome.json")]
    process = subprocess.Popen(
        command, cwd=children.ROOT, env={**os.environ, "TMPDIR": str(directory)}, stderr=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        while not any(directory.glob("causal-bench-*/job/status.json")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        for pid in of_this(directory):
            kill(pid)


@pytest.mark.parametrize(
    ("number", "arguments"),
    sample(
        [
            (signal.SIGINT, "recovery --kills 200"),
            (signal.SIGTERM, "isolation --kills 200"),
            (signal.SIGTERM, "total_failure --times 200"),
        ],
        count=1,
    ),
)
def test_a_benchmark_that_is_ended_leaves_nothing(tmp_path: Path, number: signal.Signals, arguments: str) -> None:
    with benchmark(tmp_path, *arguments.split()) as process:
        assert len(of_this(tmp_path)) > 3
        process.send_signal(number)
        _, said = process.communicate()
        assert process.returncode == 128 + number
        assert said.strip().splitlines()[-1] == f"benchmarks: interrupted by {number.name}"
        assert of_this(tmp_path) == []
        assert not list(tmp_path.iterdir())


@pytest.mark.campaign
def test_a_part_of_all_ends_with_it(tmp_path: Path) -> None:
    with benchmark(tmp_path, "all", "--only", "recovery") as process:
        process.terminate()
        process.communicate()
        assert process.returncode == 128 + signal.SIGTERM
        assert of_this(tmp_path) == []


def test_a_benchmark_that_is_killed_takes_its_job_with_it(tmp_path: Path) -> None:
    with benchmark(tmp_path, "recovery", "--kills", "200") as process:
        process.kill()
        process.wait()
        while of_this(tmp_path):  # the test's own limit ends this if it never does
            time.sleep(0.02)


def test_what_does_not_heed_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "END_WITHIN_S", 0.2)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    with children.started([sys.executable, "-c", deaf], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "deaf\n"
    assert process.returncode == -signal.SIGKILL


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    mark = {**os.environ, "TMPDIR": str(tmp_path)}
    with pytest.raises(subprocess.TimeoutExpired):
        children.run([sys.executable, "-c", "import time; time.sleep(600)"], limit_s=1.0, env=mark)
    assert of_this(tmp_path) == []


def test_orphans_that_a_benchmark_left_are_killed_and_told_of(tmp_path: Path) -> None:
    orphan = "import subprocess; print(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL).pid)"
    program = (
        "import subprocess, sys; from benchmarks.harness import children;"
        f"leave = lambda: subprocess.run([sys.executable, '-c', {orphan!r}]).returncode;"
        "sys.exit(children.attended(leave))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=children.ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "benchmarks: 1 processes were left, and have been killed\n"
    assert not Path(f"/proc/{int(done.stdout)}").exists()
