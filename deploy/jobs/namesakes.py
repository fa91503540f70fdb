"""Handles pipelines of the same name in different files: neither may discard or resume the other's job.

A file counts as the same as before if at least two of these hold: it has the same name; it has the same code; no file
exists at its previous path. A file that was moved, renamed or edited is therefore the same file, and an edited copy is
a different one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError
from deploy.jobs import versions
from deploy.jobs.edited import changed_since, listed
from deploy.jobs.hints import resume_command
from operators.code_archive.archive import Archive, changed, same_code


def of_other_file(job: Path, config: JobConfig, path: Path) -> bool:
    """Return whether the job in a directory, with that configuration, belongs to a file other than `path`."""
    before = Path(config.pipeline)
    if before == path:
        return False
    with suppress(OSError):
        if before.samefile(path):
            return False
    return [before.name == path.name, _same_code(job, config, path), not before.exists()].count(True) < 2


def _same_code(job: Path, config: JobConfig, path: Path) -> bool:
    try:
        return same_code(Archive.load(job, config.code).pipeline.source, path.read_bytes())
    except (CorruptData, OSError):
        return False


def _changes(job: Path, before: JobConfig, path: Path, config: JobConfig, code_kept: bool) -> list[str]:
    """Return the names of the job's files and settings whose current values would change its behaviour."""
    settings = sorted({*before.settings, *config.settings})
    differing = [name for name in settings if before.settings.get(name) != config.settings.get(name)]
    if not path.exists() or (not differing and (code_kept or not changed_since(job, before))):
        return []
    version = versions.first(path, dict(config.settings))
    default = version.pipeline.settings.default
    others = [
        f"setting {name}"
        for name in differing
        if before.settings.get(name, default(name)) != config.settings.get(name, default(name))
    ]
    files = [] if code_kept else changed(Archive.load(job, before.code), version.archive)
    return [*files, *others]


def check_unfinished(job: Path, path: Path) -> None:
    """Refuse to begin a job for `path` if that would discard an unfinished job of another file.

    Raises:
        PipelineError: an unfinished job would be discarded.
    """
    try:
        config = JobConfig.load(job)
    except (PipelineError, CorruptData, OSError):
        return  # the earlier job cannot be resumed anyway
    if of_other_file(job, config, path):
        raise PipelineError(
            f"{job} has an unfinished job of {config.pipeline}, which this job would discard; resume that job "
            f"with {resume_command(job)}, or use another --state-dir or Pipeline name for this one; to discard "
            f"the unfinished job, remove {os.fspath(job / 'job.json')}"
        )


def finished(job: Path, before: JobConfig, path: Path, config: JobConfig, code_kept: bool = False) -> str:
    """Return the message for resuming `path` if the job has finished.

    Args:
        before: the settings of the finished job; `config` contains those for the resumption.
        code_kept: whether the resumption uses the code of the finished job, whatever `path` contains now.

    Raises:
        PipelineError: the job belongs to another file, or the current version would behave differently.
    """
    changes = [] if of_other_file(job, before, path) else _changes(job, before, path, config, code_kept)
    if changes:
        raise PipelineError(
            f"job {config.name} has finished, and {listed(changes)} changed since: its windows and timers ended "
            "with its input, so no other version can continue it; start without --resume to run this version "
            "from the beginning; if another version should continue a backfill, keep its source open and end "
            "the backfill with `causal savepoint --stop`"
        )
    config = before
    if of_other_file(job, config, path):
        raise PipelineError(
            f"{job} does not contain a job of {path} to resume: the finished job is {config.pipeline}; start "
            "this one without --resume, with another --state-dir or Pipeline name"
        )
    return f"job {config.name} has finished already; start without --resume to run it again"
