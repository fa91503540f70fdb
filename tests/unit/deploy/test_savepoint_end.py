"""`causal savepoint` at a job that ends on its own before anybody has answered."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from causal.config import JobConfig
from causal.errors import Unavailable
from deploy import savepoint_command

ARGUMENTS = argparse.Namespace(job=None, name=None, stop=True, to=None, list=False, delete=None)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    JobConfig(run="r", name="job", pipeline="/p.py").save(tmp_path)
    (tmp_path / "runtime").write_text(str(tmp_path))
    return tmp_path


def lock_of(job: Path) -> int:
    """Return the lock that a `causal run` holds as long as it lives."""
    handle = os.open(job / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


@pytest.mark.parametrize(
    ("ended", "said"), [({"reason": ""}, "it has finished"), ({"reason": "out/0 failed"}, "out/0 failed")]
)
def test_a_job_that_ends_meanwhile_is_said_to_have_ended(
    job: Path, monkeypatch: pytest.MonkeyPatch, ended: dict[str, str], said: str
) -> None:
    handle = lock_of(job)
    (job / "status.json").write_text(json.dumps({"job": "job", "ended": ended}))

    def ask(*asked: Any) -> None:
        threading.Timer(0.3, os.close, (handle,)).start()  # the supervisor has ended, `causal run` is about to

    monkeypatch.setattr(savepoint_command, "ask", ask)
    ARGUMENTS.state_dir = str(job)
    with pytest.raises(Unavailable, match=f"ended before its savepoint: {said}"):
        savepoint_command.savepoint(ARGUMENTS)


def test_a_supervisor_that_is_silent_while_its_job_lives_is_told_of(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = lock_of(job)
    monkeypatch.setattr(savepoint_command, "ask", lambda *asked: None)
    monkeypatch.setattr(savepoint_command, "ANSWER_S", 0.2)
    ARGUMENTS.state_dir = str(job)
    with pytest.raises(Unavailable, match="does not answer"):
        savepoint_command.savepoint(ARGUMENTS)
    os.close(handle)
