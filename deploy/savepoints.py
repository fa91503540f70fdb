"""`causal savepoint`: end a running job at a checkpoint that another pipeline, or the same one, can go on from."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from causal.errors import PipelineError, Unavailable
from deploy.jobdirectory import find_job, running
from standby.control import ask
from standby.savepoints import STOPPED

ANSWER_S = 5.0
LOOK_S = 0.1


def savepoint(arguments: argparse.Namespace) -> int:
    """The command; returns its exit status.

    Raises:
        PipelineError: there is no such job, or it does not run.
        Unavailable: the job ended before it came to the savepoint.
    """
    job = find_job(arguments.job, arguments.state_dir)
    if not arguments.stop:
        raise PipelineError("a savepoint ends the job, so that rows do not come twice: give --stop")
    answer = ask(str(_sockets(job)), "savepoint", {"final": True}, ANSWER_S)
    if answer is None:
        raise Unavailable(f"the supervisor of the job in {job} does not answer; see {job}/logs/supervisor.log")
    if not answer.get("ok"):
        raise Unavailable(str(answer.get("error")))
    reason = _ended(job)
    if not reason.startswith(STOPPED):
        raise Unavailable(f"the job in {job} ended before its savepoint: {reason or 'it has finished'}")
    print(f"{reason}; go on with: causal run PIPELINE.py --resume --state-dir {job}")
    return 0


def _sockets(job: Path) -> Path:
    if not running(job):
        raise PipelineError(f"the job in {job} is not running; `causal run --resume` goes on with it")
    return Path((job / "runtime").read_text().strip())


def _ended(job: Path) -> str:
    """The reason for which the job ended, once every process of it is gone."""
    while running(job):
        time.sleep(LOOK_S)
    view: dict[str, Any] = json.loads((job / "status.json").read_text())
    if view["ended"] is None:
        return "it was interrupted"
    return str(view["ended"]["reason"])
