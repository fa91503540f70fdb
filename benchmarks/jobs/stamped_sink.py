"""A `SqliteSink` that also notes when each bundle became visible, so that gaps and latencies of rows can be computed.

The stamps are in a file next to the database, one fixed-size entry per bundle, in monotonic time.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from causal.ports import Bundle, SinkStore
from operators.sinks import SqliteSink
from operators.sinks.sqlite.sqlite_store import SqliteStore

_STAMP = struct.Struct("<qqq")


@dataclass(frozen=True, slots=True)
class Stamp:
    """Rows `first` to `first + count - 1` became visible at `at_ns`."""

    at_ns: int
    first: int
    count: int


class StampedSink(SqliteSink):
    """The same rows as a `SqliteSink`; for a sink of one task."""

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task; the file is not touched before its `open`."""
        return _StampedStore(self, task, stamps_path(self.path))


class _StampedStore(SqliteStore):
    def __init__(self, sink: SqliteSink, task: str, stamps: Path) -> None:
        super().__init__(sink, task)
        self._stamps = stamps

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`; a bundle of no rows, which only says that the end is here, has none."""
        super().write(bundle)
        if not bundle.count:
            return
        stamp = _STAMP.pack(time.monotonic_ns(), bundle.first, bundle.count)
        file = os.open(self._stamps, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, stamp)
        finally:
            os.close(file)


def stamps_path(database: Path) -> Path:
    """Return where the stamps of a sink's database are."""
    return database.with_name(database.name + ".stamps")


def read_stamps(database: Path) -> list[Stamp]:
    """Return all stamps, in the order of time; of rows that were written again after a failed try, the first counts."""
    stamps: list[Stamp] = []
    next_row = 0
    for at_ns, first, count in _STAMP.iter_unpack(stamps_path(database).read_bytes()):
        if first + count > next_row:
            fresh = max(first, next_row)
            stamps.append(Stamp(at_ns, fresh, first + count - fresh))
            next_row = first + count
    return stamps
