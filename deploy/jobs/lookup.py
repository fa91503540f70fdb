"""Finds jobs on this machine for commands: which directory is meant, and whether its job is running.

This module imports little, so that commands that only read are fast.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

from causal.errors import PipelineError

ROOT = Path(".causal")
"""The directory that contains all jobs for which `--state-dir` is not used."""

VIEW = "status.json"
"""The supervisor's view of the job, which is replaced twice a second."""

LOOK_S = 0.05

VIEW_BEFORE = "status-before.json"
"""The last view from before the job was resumed."""


def running(job: Path) -> bool:
    """Return whether a `causal run` process has locked this job directory; only read permission is needed."""
    try:
        handle = os.open(job / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def coming_up(job: Path) -> bool:
    """Return whether a running job's view is still that of the previous process, as `causal run` recorded in the
    lock.
    """
    try:
        return (job / "lock").read_text() == str((job / VIEW).stat().st_mtime_ns)
    except (OSError, ValueError):
        return False


def ended(job: Path, slot: str, within_s: float) -> bool:
    """Return whether, within `within_s`, the supervisor shows the end of a process that it was asked to kill, or the
    job ends.
    """
    deadline, before = time.monotonic() + within_s, ""
    while time.monotonic() < deadline:
        try:
            text = (job / VIEW).read_text()
        except FileNotFoundError:
            return True  # the job has ended and is starting again
        before = before or text  # the first view may have been written before the kill
        if text != before and slot not in [process["slot"] for process in json.loads(text)["processes"]]:
            return True
        if not running(job):
            return True
        time.sleep(LOOK_S)
    return False


def holds_job(directory: Path) -> bool:
    """Return whether the directory contains a job.

    Raises:
        PipelineError: the directory cannot be read.
    """
    try:
        (directory / "job.json").stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as problem:
        raise PipelineError(f"{directory} cannot be used: {problem.strerror}") from None
    return True


def find_job(name: str | None, state_dir: str | None) -> Path:
    """Return the directory that `--job` or `--state-dir` names; by default, that of the only job under `.causal`.

    Raises:
        PipelineError: there is no such job, or more than one.
    """
    if state_dir is not None:
        path = Path(state_dir)
    elif name is not None:
        path = ROOT / name
    else:
        jobs = sorted(entry.parent for entry in ROOT.glob("*/job.json"))
        if len(jobs) > 1:
            raise PipelineError(
                f"several jobs exist here; choose one with --job {', --job '.join(job.name for job in jobs)}"
            )
        if not jobs:
            raise PipelineError(f"{ROOT} has no jobs; use --state-dir DIR")
        path = jobs[0]
    if not holds_job(path):
        raise PipelineError(f"{path} does not contain a job (job.json is missing); start one with `causal run`")
    return path.resolve()


def names_job(text: str) -> bool:
    """Return whether a text is the name of a job under `.causal` or the path of a job directory."""
    return holds_job(Path(text)) or holds_job(ROOT / text)
