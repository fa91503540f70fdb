"""A reader of the output while the job runs: rows once seen must still be there, unchanged, at the end."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

_ROWS = "SELECT task, position, record FROM output WHERE task = ? AND position > ? ORDER BY position"


class Witness:
    """Remembers every row of a `SqliteSink` that it saw.

    Args:
        database: the sink's file; need not be there yet.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._seen: dict[tuple[str, int], bytes] = {}
        self._last: dict[str, int] = {}

    def look(self) -> None:
        """See the rows that have come since the last look; none while the file cannot be read."""
        if not self._database.exists():
            return
        try:
            for task, position, record in self._rows(self._last):
                self._seen[task, position] = _digest(record)
                self._last[task] = max(position, self._last.get(task, -1))
        except sqlite3.OperationalError:
            return  # no table yet, or no space for the reader's own index: it looks again later

    def contradicted(self) -> int:
        """Return how many rows that were visible are gone now or say something else."""
        left = dict(self._seen)
        for task, position, record in self._rows({}):
            if left.get((task, position)) == _digest(record):
                del left[task, position]
        return len(left)

    def _rows(self, after: dict[str, int]) -> Iterator[tuple[str, int, str]]:
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=1.0)) as connection:
            for (task,) in connection.execute("SELECT task FROM causal_task").fetchall():
                yield from connection.execute(_ROWS, (task, after.get(task, -1)))


def _digest(record: str) -> bytes:
    return blake2b(record.encode(), digest_size=8).digest()
