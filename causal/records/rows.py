"""Records as columns: `Rows` are tuples of one length, `Counted` are keys with the number of records of each.

A batch that is decoded, asked for its keys and counted, or that an operator makes as columns, need never
be taken apart into tuples and put together again.  Never changed once made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from causal.errors import invariant


class Rows:
    """Rows of at least one column; iterating over them yields tuples.

    Attributes:
        columns: lists of one length, which belong to the rows from then on.
    """

    __slots__ = ("columns", "_listed")

    def __init__(self, columns: Sequence[list[Any]]) -> None:
        invariant(len(columns) > 0, "rows have a column")
        self.columns = columns
        self._listed: list[tuple[Any, ...]] | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self.columns, strict=True) if self._listed is None else iter(self._listed)

    def listed(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples, the same ones at every call."""
        if self._listed is None:
            self._listed = list(zip(*self.columns, strict=True))
        return self._listed


class Counted:
    """Keys, and how many records each of them stands for, where a reader would only count the records.

    Attributes:
        keys: canonical keys.
        counts: whole numbers from 1, of the same length.
    """

    __slots__ = ("keys", "counts")

    def __init__(self, keys: list[Any], counts: list[int]) -> None:
        invariant(len(keys) == len(counts), "each key has a count", keys=len(keys), counts=len(counts))
        self.keys = keys
        self.counts = counts

    def __len__(self) -> int:
        return len(self.keys)

    __iter__ = None
    """Keys are no records."""

    def __getitem__(self, part: slice) -> Counted:
        return Counted(self.keys[part], self.counts[part])


def listed(records: Any) -> Any:
    """Return `Rows` as a list of tuples; anything else as it is."""
    return records.listed() if type(records) is Rows else records
