"""The places of staged rows: the job directory on one machine, or the store that the job's hosts share.

    staged/<operator>/<index>/rows/…, owner, lock   in a directory; `owner` is the journal
    staged/<task>/rows/…, journal/…                 in a shared store, with "-" for "/" in the task's name

Durability in a directory. With "process", staged rows survive the death of every process. With "os", they also survive
a loss of power: each object is synced when it is created, and so is the record that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from causal.ports import SinkStore
from causal.storage.directory import Directory
from causal.storage.file_journal import FileJournal
from causal.storage.files import make_directory
from causal.storage.lock import outside
from causal.storage.object_journal import ObjectJournal
from causal.storage.objects import Objects
from operators.sinks.staging.earlier_rows import EarlierRows
from operators.sinks.staging.staged_store import StagedPlace, StagedStore

DIRECTORY = "staged"
OWNER = "owner"
ROWS = "rows"
BUSY_MS = 2000


def staged_in_directory(
    inner: SinkStore, task: str, directory: Path, bytes_max: int, durability: str = "process"
) -> StagedStore:
    """Return the store of staged rows on one machine.

    Args:
        inner: the store that receives rows once a checkpoint covers them.
        directory: the directory of this task's staged rows, which is created when the store is opened.
        bytes_max: the number of bytes that staged rows should not exceed.
        durability: "process" or "os" (see the module).
    """
    sync = durability == "os"

    def connect() -> Objects:
        with outside(directory):
            make_directory(directory, sync)
        return Directory(directory)

    def journal(objects: Callable[[], Objects]) -> FileJournal:
        return FileJournal(task, directory / OWNER, directory / "lock", directory, BUSY_MS, sync)

    return StagedStore(inner, bytes_max, StagedPlace(ROWS, sync, connect, journal, EarlierRows(directory)))


def staged_in_store(
    inner: SinkStore, task: str, bytes_max: int, place: str, connect: Callable[[], Objects]
) -> StagedStore:
    """Return the store of staged rows in the storage that the job's hosts share.

    Args:
        inner, bytes_max: as for `staged_in_directory`.
        place: the store and the run's place in it, for error messages.
        connect: returns the client of the shared store.
    """
    folder = f"{DIRECTORY}/{task.replace('/', '-')}"

    def journal(objects: Callable[[], Objects]) -> ObjectJournal:
        return ObjectJournal(task, f"{folder}/journal", place, objects)

    return StagedStore(inner, bytes_max, StagedPlace(f"{folder}/{ROWS}", True, connect, journal))
