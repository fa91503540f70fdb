"""The arguments with which commands name a job."""

from __future__ import annotations

import argparse
from pathlib import Path

from causal.errors import PipelineError
from deploy.jobs.lookup import ROOT, find_job, holds_job

SUFFIX = ".causal"
"""The end of the names of bundle files."""


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a job, which are the same for every command.

    A command's own positional arguments must be added after them.
    """
    parser.add_argument("job", metavar="JOB", nargs="?", help=f"a job under {ROOT}, or its directory")
    parser.add_argument("--job", dest="name", metavar="NAME", help=f"a job under {ROOT}; default: the only one")
    parser.add_argument("--state-dir", metavar="DIR", help="the job's directory")


def chosen_job(arguments: argparse.Namespace) -> Path:
    """Return the job directory, which may be specified by a path, by a name under `.causal`, or by default.

    Raises:
        PipelineError: there is no such job, there are several, or it is specified twice.
    """
    job, name, state_dir = arguments.job, arguments.name, arguments.state_dir
    if sum(each is not None for each in (job, name, state_dir)) > 1:
        raise PipelineError("use only one of JOB, --job and --state-dir")
    if job is not None and (holds_job(Path(job)) or not holds_job(ROOT / job)):
        return find_job(None, job)
    return find_job(job if name is None else name, state_dir)


def chosen_recording(arguments: argparse.Namespace) -> Path:
    """Return the directory of a job, as `chosen_job`, or the bundle file that is named instead of one.

    Raises:
        PipelineError: as for `chosen_job`.
    """
    if arguments.job is not None and (Path(arguments.job).is_file() or arguments.job.endswith(SUFFIX)):
        if arguments.name is None and arguments.state_dir is None:
            return Path(arguments.job).absolute()
    return chosen_job(arguments)
