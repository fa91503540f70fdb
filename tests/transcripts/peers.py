"""The outside world of a transcript: a source's partition and a sink's store.  They outlive every task."""

from __future__ import annotations

from typing import Any

from causal.errors import Fenced
from causal.ports import Bundle
from operators.source import Read
from operators.testing.outside import MemoryStore


def label(record: Any) -> str:
    """Return a record in a word: its label, and its size if it carries padding."""
    if isinstance(record, tuple):
        return f"{record[0]}({len(record[1]) // 1000}kB)"
    return str(record)


class Partition:
    """The input of a source: it grows by command, and can be read again from any position."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.ended = False

    def read(self, position: int, count_max: int) -> Read | None:
        """Return the records from there on; None while there are none."""
        records = self.records[position : position + count_max]
        ended = self.ended and position + len(records) == len(self.records)
        return Read(records, 0, ended) if records or ended else None


class Store(MemoryStore):
    """A sink's store in memory, which says in its own words why it refuses."""

    def check(self, incarnation: int) -> None:
        """Refuse an incarnation with a younger successor.

        Raises:
            Fenced: a younger one has opened the store.
        """
        if incarnation < self.account.incarnation:
            raise Fenced(
                f"the store belongs to incarnation {self.account.incarnation}; this is incarnation {incarnation}"
            )

    def words(self) -> list[str]:
        """Return the rows."""
        return self.rows.decode().splitlines()


def rows_of(bundle: Bundle) -> list[str]:
    """Return the rows of a bundle as words."""
    return bundle.rows.decode().splitlines()
