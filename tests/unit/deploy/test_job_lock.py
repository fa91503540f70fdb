"""The lock of a job's directory: only another job refuses one, and never a look at whether it runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.harness.graphs import chain_of
from causal.config import JobConfig
from causal.errors import PipelineError
from deploy.cli import main
from deploy.jobs.jobdirectory import JobDirectory
from deploy.jobs.lookup import VIEW
from deploy.ui.observed import ObservedJob
from standby.blueprint import Blueprint
from tests.unit.deploy.test_report import view

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


def test_a_job_that_comes_up_does_not_show_the_view_of_the_life_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    JobConfig(run="r", name="j", pipeline=str(tmp_path / "p.py")).save(tmp_path)
    Blueprint(chain_of("read/0", "count/0", "out/0")).save(tmp_path)
    (tmp_path / "lock").touch()
    (tmp_path / VIEW).write_text(json.dumps({**view(), "ended": None}))
    shows = ["status", "--state-dir", str(tmp_path)]
    directory = JobDirectory(tmp_path)
    assert main(shows) == main(["hosts", *shows[1:]]) == 2
    assert "has not come up yet; try again" in capsys.readouterr().err
    assert "The job has not started yet." in json.dumps(ObservedJob(tmp_path, breaks=False).page())
    time.sleep(0.01)
    (tmp_path / VIEW).write_text(json.dumps({**view(), "ended": None}))
    assert main(shows) == 0 and "j: running" in capsys.readouterr().out
    directory.close()
    JobDirectory(tmp_path).close()  # a resumption that is refused
    assert main(shows) == 0
    assert "j: not running: it was interrupted" in capsys.readouterr().out
