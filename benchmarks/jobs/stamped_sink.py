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


def stamps_in(database: Path, skipped: int = 0) -> list[Stamp]:
    """Return the stamps after the first `skipped`, in the order of time, also of rows that were written again."""
    path = stamps_path(database)
    if not path.exists():
        return []
    with open(path, "rb") as file:
        file.seek(skipped * _STAMP.size)
        content = file.read()
    whole = len(content) // _STAMP.size * _STAMP.size
    return [Stamp(*fields) for fields in _STAMP.iter_unpack(content[:whole])]


class Arrivals:
    """The moments at which rows of a sink became visible, read while more of them do.

    Of rows that were written again after a failed try, the first counts.

    Attributes:
        stamps: in the order of time, also of rows that were withdrawn later.
        rows: how many rows there are.
        withdrawn: how many rows were withdrawn at the last return.
        returned_ns: when the first row after it became visible; None before.
    """

    def __init__(self, database: Path) -> None:
        self.database = database
        self._read = 0
        self._returns_to: int | None = None
        self.stamps: list[Stamp] = []
        self.rows = self.withdrawn = 0
        self.returned_ns: int | None = None

    def look(self) -> None:
        """Read what has become visible since the last look."""
        for stamp in stamps_in(self.database, self._read):
            self._read += 1
            if stamp.first == self._returns_to:
                self.withdrawn, self.returned_ns = self.rows - stamp.first, stamp.at_ns
                self.rows, self._returns_to = stamp.first, None
            end = stamp.first + stamp.count
            if end > self.rows:
                fresh = max(stamp.first, self.rows)
                self.stamps.append(Stamp(stamp.at_ns, fresh, end - fresh))
                self.rows = end

    def will_return_to(self, rows: int) -> None:
        """Expect that the sink withdraws all rows but the first `rows`, so that the next row has that position."""
        self.look()
        self._returns_to, self.returned_ns = rows, None


def read_stamps(database: Path) -> list[Stamp]:
    """Return all stamps, in the order of time; of rows that were written again after a failed try, the first counts."""
    arrivals = Arrivals(database)
    arrivals.look()
    return arrivals.stamps
