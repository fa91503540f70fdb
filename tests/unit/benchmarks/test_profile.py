"""CPU time is charged to roles: each process has the role that the supervisor or its command line shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.profile_threads import ThreadTimes, thread_times


@pytest.fixture
def child() -> Iterator[int]:
    """A process that has begun, and waits."""
    program = "import sys, threading; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "operators.runtime.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None and run.stdout.readline()
        yield run.pid


def view(job: Path, pid: int, **process: str) -> None:
    (job / "status.json").write_text(json.dumps({"processes": [{"pid": pid, "task": None, **process}]}))


def test_a_worker_is_what_the_supervisor_tells(tmp_path: Path, child: int) -> None:
    times = ThreadTimes(tmp_path)
    times.look()
    assert "worker that has no task yet" in times.seconds()
    view(tmp_path, child, standby_of="count/1")
    times.look()
    assert set(times.seconds()["standby"]) == {"python"}
    view(tmp_path, child, task="count/1", state="serving")
    times.look()
    assert set(times.seconds()) >= {"count"} and "standby" not in times.seconds()


def test_a_process_that_has_ended_keeps_its_time(tmp_path: Path, child: int) -> None:
    view(tmp_path, child, task="rows/0", state="serving")
    with thread_times(tmp_path) as times:
        times.look()
    before = times.seconds()["rows"]
    (tmp_path / "status.json").unlink()
    assert times.seconds()["rows"] == before and before["python"] > 0


def test_a_process_seen_before_its_exec_has_the_role_of_its_own_program(tmp_path: Path) -> None:
    after = "import sys; print(2, flush=True); sys.stdin.read()"
    before = (
        "import os, sys; print(1, flush=True); sys.stdin.readline(); "
        f"os.execv(sys.executable, [sys.executable, '-c', {after!r}, 'standby.daemon'])"
    )
    times = ThreadTimes(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", before, "deploy"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None and child.stdout.readline()
        times.look()
        assert "run" in times.seconds()
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "2\n"
        times.look()
        assert "supervisor" in times.seconds() and "run" not in times.seconds()
