"""Makes the checkpoints of a multi-host job, whose files are in the shared store, available in the job directory.

Commands read a checkpoint from the job directory.  Files that exist only in the store are fetched first.  Files that a
command has prepared in the directory for the job's next start are uploaded before that start.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from causal.commands import Files
from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError, Unavailable
from causal.snapshot_files import SNAPSHOT_SUFFIX
from causal.storage.shared import Depot
from operators.code_archive.archive import path_of
from standby.storage.manifest_files import DIRECTORY

if TYPE_CHECKING:
    from operators.engine.plan import Plan


def fetch(job: Path, files: Iterable[Files], config: JobConfig | None = None) -> None:
    """Fetch a checkpoint's files and the job's code into the job directory if the job has a shared store.

    Args:
        config: the settings of the job; those in its directory by default.

    Raises:
        CorruptData: a file is not in the store, because a later checkpoint has replaced it.
        Unavailable: the store does not answer, or the directory cannot be written.
    """
    config = config or JobConfig.load(job)
    wanted: list[tuple[str, int | None]] = [(path, size) for each in files for path, size, _ in each]
    if config.code:
        wanted.append((str(path_of(Path(), config.code)), None))
    lacking = [(path, size) for path, size in wanted if not (job / path).exists()]
    if not config.store or not lacking:
        return
    depot = Depot(config.store, config.place_in_store, proof="")
    for path, size in lacking:
        data = depot.read(path)
        if size is not None and len(data) != size:
            raise CorruptData(f"{config.store}: {path} has {len(data)} bytes instead of {size}; restore it from a copy")
        fresh = (job / path).with_name(f"{(job / path).name}.{os.getpid()}.new")
        try:
            fresh.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(data)
            os.replace(fresh, job / path)
        except OSError as problem:
            fresh.unlink(missing_ok=True)
            raise Unavailable(f"{fresh.parent}: a checkpoint cannot be fetched: {problem.strerror}") from None


def check_unbound(config: JobConfig, planned: Plan, only: str = "") -> None:
    """Refuse to change a multi-host job whose plan has stores that this machine cannot open.

    Args:
        only: the only task whose store will be opened; empty for all tasks.

    Raises:
        PipelineError: the store of a task must be opened on that task's own machine.
    """
    for task, reason in planned.bound() if config.listen else ():
        if only in ("", task):
            raise PipelineError(
                f"{task}: {reason}, but a multi-host job is changed on the supervisor's machine, which cannot open "
                "this store; use PostgresSink, RedisSink, or JsonLinesSink or ParquetSink with the URL of a store, or "
                "resume the job unchanged"
            )


def first_name(task: str, epoch: int, incarnation: int, shared: bool) -> str:
    """Return the name of a task's first snapshot in a version that begins from a savepoint.

    Args:
        shared: whether the snapshot is uploaded to the shared store, where each name is used only once, so that every
            attempt needs a new name.
    """
    attempt = f"-{secrets.token_hex(4)}" if shared else ""
    return f"{DIRECTORY}/{task}/e{epoch:08d}-i{incarnation}{attempt}{SNAPSHOT_SUFFIX}"


def unload(config: JobConfig, paths: Iterable[str]) -> None:
    """Remove snapshots that a command has uploaded to the shared store, if the job has one, and no version has."""
    if config.store:
        Depot(config.store, config.place_in_store).remove(paths)


def upload(job: Path, config: JobConfig, files: Iterable[Files]) -> None:
    """Upload the first snapshots of a version to the shared store, if the job has one.

    The snapshots take effect once the journal lists them.

    Raises:
        Unavailable: the store does not answer.
    """
    if not config.store:
        return
    depot = Depot(config.store, config.place_in_store)
    for path in (path for each in files for path, _, _ in each):
        depot.create_own(path, (job / path).read_bytes())
