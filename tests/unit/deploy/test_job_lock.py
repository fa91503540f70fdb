"""The lock of a job's directory: only another job refuses one, and never a look at whether it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from causal.errors import PipelineError
from deploy.jobs.jobdirectory import JobDirectory

HOLDER = """
import fcntl, os, sys, time
handle = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(handle, getattr(fcntl, sys.argv[2]))
print("locked", flush=True)
time.sleep(float(sys.argv[3]))
"""


@contextmanager
def holding(job: Path, kind: str, seconds: float) -> Iterator[None]:
    """Another process that holds the lock from the beginning of the context for some seconds."""
    job.mkdir()
    (job / "lock").touch()
    command = [sys.executable, "-c", HOLDER, str(job / "lock"), kind, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        try:
            yield
        finally:
            holder.kill()


def test_a_look_at_the_job_refuses_none(tmp_path: Path) -> None:
    with holding(tmp_path / "job", "LOCK_SH", 0.05):
        JobDirectory(tmp_path / "job").close()


def test_a_job_that_runs_refuses_another(tmp_path: Path) -> None:
    with holding(tmp_path / "job", "LOCK_EX", 60), pytest.raises(PipelineError, match="a job runs in"):
        JobDirectory(tmp_path / "job")
