"""A store for values that are not in memory: bytes by key in a single file, which is only a cache.

Only checkpoints must survive a failure. The file has no name once it is open, and it disappears with its process, so it
is not synchronised, not journaled and never read by another process. Another storage engine would be another class with
the same methods.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from causal.errors import Unavailable
from operators.state.unnamed_files import numbered_file

_AT_ONCE = 500
_CACHE_KIB = 2048
_PAGE_BYTES = 16 << 10
"""The page size; a row of up to a quarter of a page fits into one page, and a longer row also uses extra pages."""

R = TypeVar("R")


class ColdStore:
    """A map from bytes to bytes on disk; its file is created when the first value is put."""

    def __init__(self, directory: str) -> None:
        """
        Args:
            directory: the directory of the file, which is created if it does not exist.
        """
        self.directory = directory
        self._base: sqlite3.Connection | None = None

    def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of those keys that have a value."""
        base, values = self._base, dict[bytes, bytes]()
        if base is not None:
            for start in range(0, len(keys), _AT_ONCE):
                part = keys[start : start + _AT_ONCE]
                marks = ",".join("?" * len(part))
                values.update(self._asked(base, f"SELECT k, v FROM cold WHERE k IN ({marks})", part))
        return values

    def put_many(self, rows: Sequence[tuple[bytes, bytes, bytes | None]]) -> None:
        """Set values from rows (key, value, name); `names` yields the name, or the key if the name is None.

        Raises:
            Unavailable: the disk is full or fails.
        """
        base = self._tried(self._opened)
        self._tried(lambda: base.executemany("INSERT OR REPLACE INTO cold VALUES (?, ?, ?)", rows))

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Delete the values of those keys that have a value."""
        base = self._base
        if base is not None:
            self._tried(lambda: base.executemany("DELETE FROM cold WHERE k = ?", [(key,) for key in keys]))

    def names(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, name) for every key; the caller must not put or delete values during the iteration."""
        if self._base is not None:
            yield from self._base.execute("SELECT k, COALESCE(o, k) FROM cold")

    def names_behind(self, key: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """Return (key, name) for the first `count` keys after `key` in key order; return fewer only at the end."""
        base, query = self._base, "SELECT k, COALESCE(o, k) FROM cold WHERE k > ? ORDER BY k LIMIT ?"
        return [] if base is None else self._tried(lambda: base.execute(query, (key, count)).fetchall())

    def close(self) -> None:
        """Close the file, which empties the store."""
        if self._base is not None:
            self._base.close()
            self._base = None

    def _asked(self, base: sqlite3.Connection, query: str, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        return self._tried(lambda: base.execute(query, keys).fetchall())

    def _opened(self) -> sqlite3.Connection:
        if self._base is None:
            path = numbered_file(self.directory, "cold")
            base = sqlite3.connect(path, isolation_level=None)
            base.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            base.execute("PRAGMA journal_mode = OFF")
            base.execute("PRAGMA synchronous = OFF")
            base.execute("PRAGMA locking_mode = EXCLUSIVE")
            base.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            base.execute("CREATE TABLE cold (k BLOB PRIMARY KEY, v BLOB NOT NULL, o BLOB) WITHOUT ROWID")
            os.unlink(path)
            self._base = base
        return self._base

    def _tried(self, ask: Callable[[], R]) -> R:
        try:
            return ask()
        except (sqlite3.Error, OSError) as problem:
            raise Unavailable(
                f"state cannot be kept in {self.directory}: {problem}; free space there, or set state to memory"
            ) from problem
