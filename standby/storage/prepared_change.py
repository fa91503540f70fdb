"""A change of a job that was prepared in its directory, and takes effect as a whole.

The files of the next version are written to `change/`.  The change is final once that directory contains `ready`; from
then on, the process that finds it carries it out; a process that is interrupted leaves the rest to the next.  A change
of a job on several hosts is final once its decisions are in the shared store.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from causal.storage.files import sync_directory, sync_tree
from causal.storage.stable import DIRECTORY as DETERMINANTS
from standby.blueprint import FILE as GRAPH
from standby.storage.change_files import CHANGE, ROLLBACK, note
from standby.storage.journal import FILE as JOURNAL
from standby.storage.journal import Journal
from standby.storage.manifest_files import DIRECTORY as MANIFESTS
from standby.storage.manifest_files import epoch_of, manifests_from, newest_manifest
from standby.storage.manifests import restore_manifest, sweep
from standby.supervision.effects import Record, RemoveFiles

READY = "ready"


def is_prepared(job: Path) -> bool:
    """Return whether a change has been prepared and has yet to be made final."""
    return (job / CHANGE / JOURNAL).exists()


def decide(job: Path, records: Sequence[Record], durable: bool) -> tuple[Record, ...]:
    """Add decisions to those with which the next version begins, and return all of them.

    Args:
        durable: whether they must survive a power failure.
    """
    prepared = Journal(job / CHANGE, durable)
    try:
        prepared.append(records)
        return prepared.records()
    finally:
        prepared.close()


def version_of(directory: Path) -> tuple[str, str]:
    """Return the texts of the settings and of the graph in a directory."""
    return (directory / "job.json").read_text(), (directory / GRAPH).read_text()


def make_final(job: Path, durable: bool = False) -> None:
    """Make the prepared change final; `carry_out` must follow.

    Args:
        durable: whether the change must survive a power failure.
    """
    prepared = job / CHANGE
    if durable:
        sync_tree(prepared)
    (prepared / READY).touch()
    if durable:
        sync_directory(prepared)


def carry_out(job: Path, durable: bool = False) -> None:
    """Move the change into place if it is final.

    Args:
        durable: whether the moves must survive a power failure.
    """
    prepared = job / CHANGE
    if (prepared / READY).exists():
        for left in (JOURNAL + "-wal", JOURNAL + "-shm"):
            if (prepared / JOURNAL).exists():
                (job / left).unlink(missing_ok=True)
        if (prepared / JOURNAL).exists():
            note(job, prepared / JOURNAL)
        for name in ("topology.json", "job.json", JOURNAL):
            if (prepared / name).exists():
                os.replace(prepared / name, job / name)
        for manifest in (prepared / MANIFESTS).glob("*.json"):
            # Later manifests belong to a version that is being rolled back.
            for later in manifests_from(job, epoch_of(manifest) + 1):
                later.unlink()
            if not (job / MANIFESTS / manifest.name).exists():
                _sweep(job, epoch_of(manifest), prepared)
            os.replace(manifest, job / MANIFESTS / manifest.name)
        # The checkpoint covers everything that was logged before the change, and incarnations may start at 1 again.
        shutil.rmtree(job / DETERMINANTS, ignore_errors=True)
        (job / ROLLBACK).unlink(missing_ok=True)
        (prepared / READY).unlink()
        discard(job)
    if durable:
        sync_directory(job)


def adopt(job: Path, records: Sequence[Record]) -> None:
    """Move a change into place whose decisions are in the shared store, which makes it final.

    Whatever an interrupted call leaves undone, the next supervisor restores from the store.

    Args:
        records: the decisions of the next version.
    """
    restore_manifest(job, records)
    for name in ("topology.json", "job.json"):
        os.replace(job / CHANGE / name, job / name)
    (job / ROLLBACK).unlink(missing_ok=True)
    discard(job)


def discard(job: Path) -> None:
    """Remove what has been prepared of a change."""
    shutil.rmtree(job / CHANGE, ignore_errors=True)


def _sweep(job: Path, epoch: int, prepared: Path) -> None:
    """Remove all earlier checkpoints, because a rollback to another one begins with the prepared checkpoint."""
    newest = newest_manifest(prepared)
    files = newest[1] if newest is not None else {}
    keep = frozenset(path for each in files.values() for path, _, _ in each)
    sweep(job, RemoveFiles(keep, epoch - 1, epoch))
