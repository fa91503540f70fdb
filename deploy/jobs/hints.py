"""Complete commands that messages suggest as the next step, so that users can copy them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from causal.errors import PipelineError
from deploy.jobs.latest_view import latest
from deploy.jobs.lookup import ROOT
from standby.supervision.job_view import CandidateView, LeaderView


def resume_command(job: Path) -> str:
    """Return the command that resumes the job in a directory, as a user would enter it in the current directory."""
    from causal.config import JobConfig  # imported here because only messages need it

    try:
        config = JobConfig.load(job)
    except PipelineError:  # the settings cannot be read, which `--resume` will report
        return shlex.join(["causal", "run", "PIPELINE.py", "--resume", "--state-dir", _short(job)])
    state = [] if job.resolve() == (ROOT / config.name).resolve() else ["--state-dir", _short(job)]
    return shlex.join(["causal", "run", _short(Path(config.pipeline)), "--resume", *state])


def job_argument(job: Path) -> str:
    """Return the argument JOB with which a user names a job directory to a command in the current directory."""
    if job.resolve() == (ROOT / job.name).resolve() and not job.name.startswith("-"):
        return job.name
    path = _short(job)
    return f"./{path}" if path.startswith("-") else path


def not_running(job: Path) -> str:
    """Return the error message for a request that only a running job can serve."""
    try:
        view = latest(job)
    except (OSError, ValueError):  # writing the view was interrupted
        view = None
    if view is not None and view.ended is not None and not view.ended.status and not view.ended.reason:
        return f"the job in {job} is not running: it has finished"
    return f"the job in {job} is not running; resume it with: {resume_command(job)}"


def candidate_shown(candidate: CandidateView) -> str:
    """Return a candidate from a view, as messages name it."""
    return f"{candidate.name or 'a supervisor'} at {candidate.listen}"


def led_by(leader: LeaderView) -> str:
    """Return the leader from a view, as messages name it."""
    return f"{leader.name or 'the supervisor'} at {leader.listen} (term {leader.term})"


def check_led_here(job: Path) -> None:
    """Refuse a request to a supervisor that does not lead its job.

    Raises:
        PipelineError: another supervisor leads the job; the message names that supervisor.
    """
    try:
        view = latest(job)
    except (OSError, ValueError):
        return
    if view is not None and view.leader is not None and not view.leader.here:
        raise PipelineError(f"the job in {job} is led by {led_by(view.leader)}; run this command on that machine")


def _short(path: Path) -> str:
    """Return the path relative to the current directory if it is inside that directory; otherwise return it
    absolute.
    """
    try:
        return os.fspath(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return os.fspath(path.absolute())
