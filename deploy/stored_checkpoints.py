"""Checkpoints of a job of several hosts, whose files are in the shared store, as files of the job's directory.

Commands read a checkpoint in the job's directory.  What is only in the store is fetched first; what a command has
prepared there for the job's next start is uploaded before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from causal.commands import Files
from causal.config import JobConfig
from causal.errors import CorruptData, Unavailable
from causal.shell.depot import Depot
from standby.manifests import DIRECTORY


def fetch(job: Path, files: Iterable[Files]) -> None:
    """Brings the files of a checkpoint into the job's directory, if the job keeps them in a shared store.

    Raises:
        CorruptData: one is not in the store: a later checkpoint has taken its place.
        Unavailable: the store does not answer, or the directory cannot be written.
    """
    config = JobConfig.load(job)
    lacking = [(path, size) for each in files for path, size, _ in each if not (job / path).exists()]
    if not config.store or not lacking:
        return
    depot = Depot(config.store, config.place_in_store)
    for path, size in lacking:
        data = depot.read(path)
        if len(data) != size:
            raise CorruptData(f"{config.store}: {path} has {len(data)} bytes and not {size}; restore it from a copy")
        fresh = (job / path).with_name(f"{(job / path).name}.{os.getpid()}.new")
        try:
            fresh.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(data)
            os.replace(fresh, job / path)
        except OSError as problem:
            fresh.unlink(missing_ok=True)
            raise Unavailable(f"{fresh.parent}: a checkpoint cannot be fetched: {problem.strerror}") from None


def upload(job: Path, depot: Depot, files: Iterable[Files]) -> None:
    """Puts the files of a checkpoint into the shared store, but for those that are there.

    Raises:
        CorruptData: one of that name and another content is there.
        Unavailable: the store does not answer.
    """
    stored = set(depot.names(DIRECTORY))
    for path in (path for each in files for path, _, _ in each):
        if path not in stored:
            depot.create_own(path, (job / path).read_bytes())
