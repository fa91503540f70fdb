"""Chooses the code with which a job resumes: the code it started with or, for an upgrade, the current file (D12).

An interrupted run is replayed from its log, and only the code that wrote the log can replay it.  Other code is
therefore used only after a savepoint or with `--code new`.  Otherwise, the resumption is refused, and the message lists
the possible commands.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError
from deploy.jobs import resuming
from deploy.jobs.edited import listed
from deploy.jobs.jobdirectory import JobDirectory
from deploy.jobs.lookup import ROOT
from deploy.printable import one_line
from operators.builder.loading import freeze, load, load_archived
from operators.builder.pipeline import Pipeline
from operators.code_archive.archive import Archive, changed, minor, other_versions
from operators.code_archive.reach import hidden_by_python, versions_now
from operators.engine.plan import Plan

KEPT, NEW = "kept", "new"
CHOICES = (KEPT, NEW)
"""The possible values of `--code`."""


@dataclass(frozen=True, slots=True)
class Version:
    """The code with which a job starts or resumes.

    Attributes:
        changed: the names of the changed files; empty if the code is unchanged.
    """

    pipeline: Pipeline
    archive: Archive
    changed: tuple[str, ...] = ()

    def planned(self, plan: Plan) -> Version:
        """Return this version with the plan stored in its archive; an archive that already has a plan stays
        unchanged.
        """
        if self.archive.plan:
            return self
        return replace(self, archive=self.archive.with_plan(plan.describe()))


def first(path: Path, settings: dict[str, str]) -> Version:
    """Return the version in the file at `path`, for a new job.

    Raises:
        PipelineError: the file cannot be loaded or archived.
    """
    version = Version(*freeze(path, settings))
    for name in hidden_by_python(version.archive):
        warn(f"{name} next to the pipeline is not used: an import of that name means Python's own module; rename it")
    return version


def code_after_resume(changed: bool, stopped: bool, choice: str | None) -> str | None:
    """Return KEPT or NEW, depending on the code that a resumption uses; None if the resumption must be refused.

    Args:
        changed: whether the code in the current file differs from the code with which the job was started.
        stopped: whether the job stopped at a savepoint, so that nothing is replayed.
        choice: the user's choice from `CHOICES`, if any.
    """
    if choice == KEPT or not changed:
        return KEPT
    return NEW if stopped or choice == NEW else None


def next_of(directory: JobDirectory, before: JobConfig, config: JobConfig, path: Path, choice: str | None) -> Version:
    """Return the code with which the job in `directory` resumes.

    Args:
        before: the configuration with which the job was started; it resumes with `config`.
        path: the pipeline file that was specified for the resumption.
        choice: one of `CHOICES`, or None.

    Raises:
        PipelineError: this job cannot be resumed with other code, or the code cannot be loaded.
        CorruptData: the job's archive is damaged.
    """
    if not before.code:
        raise CorruptData(f"{directory.path} does not say which code the job ran; start it again without --resume")
    if choice == KEPT:
        return kept(Archive.load(directory.path, resuming.written(directory.path, before).code), config)
    written = Archive.load(directory.path, before.code)
    stopped = directory.stopped()
    try:
        version = first(path, dict(config.settings))
    except PipelineError as problem:
        if stopped:
            raise
        raise PipelineError(f"{problem}; --code kept resumes with the code that the job was started with") from None
    names = changed(written, version.archive)
    code = code_after_resume(bool(names), stopped, choice)
    if code == KEPT:
        if stopped and choice is None and minor(written.python) != minor(version.archive.python):
            # Nothing is replayed, and a host with this Python version refuses code that was archived with another one.
            return version
        _compare_versions(written)
        return replace(version, archive=written)
    if code is None:
        raise PipelineError(
            f"{listed(names)} changed since this run started, but its events can be replayed only by the code "
            "that performed them: resume with that code with --code kept, then upgrade after `causal savepoint "
            "--stop`; --code new replays with the new code, and ends the job if the rows differ from the "
            "visible rows"
        )
    return replace(version, changed=tuple(names))


def check_name(job: Path, before: JobConfig, path: Path, version: Version) -> None:
    """Raise `PipelineError` if a file with other code is that of another pipeline than the one that a job runs."""
    if version.pipeline.name != before.name:
        raise PipelineError(
            f"{path} defines the pipeline {version.pipeline.name!r}, but the job in {job} runs {before.name!r}; to "
            f"upgrade that job, name it Pipeline({before.name!r}), or run the file as a job of its own without --resume"
        )


def of_savepoint(where: Path, saved: JobConfig, config: JobConfig, path: Path, choice: str | None) -> Version:
    """Return the code for a job that begins at the savepoint in `where`: the savepoint's own code or the current
    file.
    """
    if choice == NEW:
        return replace(first(path, dict(config.settings)), changed=(path.name,))
    return kept(Archive.load(where, saved.code), config)


def kept(archive: Archive, config: JobConfig) -> Version:
    """Return the version of archived code, with these settings."""
    _compare_versions(archive)
    return Version(load_archived(archive, config.settings), archive)


def _compare_versions(kept: Archive) -> None:
    """Warn about dependencies that are not in the job's archive and whose versions have changed."""
    for phrase in other_versions(kept, versions_now(kept)):
        warn(f"{phrase}: it is not part of the archived code, so a replay may differ")


def job_of(path: Path, state_dir: str | None, settings: dict[str, str]) -> Path:
    """Return `state_dir` if it is set, otherwise the directory of the job that runs the pipeline file at `path`.

    The file is loaded only if no job on disk runs it, or more than one does.

    Raises:
        PipelineError: the file cannot be loaded, or several jobs run it and none of them has the pipeline's name.
    """
    if state_dir is not None:
        return Path(state_dir)
    jobs = []
    for job in sorted(entry.parent for entry in ROOT.glob("*/job.json")):
        with suppress(PipelineError, OSError):  # unreadable settings may belong to a different job
            if JobConfig.load(job).pipeline == str(path):
                jobs.append(job)
    if len(jobs) == 1:
        return jobs[0]
    several = f"{len(jobs)} jobs run {path.name}; choose one with --state-dir {' or --state-dir '.join(map(str, jobs))}"
    try:
        named = ROOT / load(path, settings).name
    except PipelineError as problem:
        raise PipelineError(f"{problem}; {several}" if jobs else str(problem)) from None
    if jobs and named not in jobs:
        raise PipelineError(several)
    return named


def warn(line: str) -> None:
    print(f"causal: {one_line(line)}", file=sys.stderr)
