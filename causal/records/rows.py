"""The forms of a batch of records: a list, or a `Batch`, whose methods depend on its form.

`Rows` are columns of tuples of equal length, `Counted` are keys with the number of records of each key, and `Vectors`
(`causal.records.vectors`) are Arrow columns. A batch that is only decoded, asked for its keys and counted, or that an
operator creates as columns, never has to be split into tuples and reassembled.

A list is used as a batch directly: the functions of this module, `encode_records`, `keys_in` and `pieces` handle it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from causal.errors import invariant
from causal.records.values import NotCarried, encode_loosely

PLAIN, TUPLES, VECTORS, COUNTED = (bytes((tag,)) for tag in range(4))
"""The first byte of a body of records; for vectors, `causal.records.columns` writes the entire body."""

Passes = Callable[[Any, Iterator[tuple[int, Any]]], bool]
"""A predicate of a record and an iterator over (index, record) of the output to which the record belongs."""


class Batch:
    """Records in a form other than a list; never changed after creation."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Return the body of a chunk; see `encode_records`."""
        raise NotImplementedError

    def joined(self, pieces: Sequence[Any]) -> Any:
        """Return one batch with the records of several batches of this class, the first of which is this one."""
        raise NotImplementedError

    def listed(self) -> Any:
        """Return the records as a list, or the batch itself if no reader needs a list."""
        return self

    def keys_at(self, item: int | None) -> list[Any] | None:
        """Return item `item` of each record, or each record's key, if no record has to be inspected; otherwise None."""
        return None

    def passing(self, passes: Passes) -> Any:
        """Return the records for which `passes` is true, for a batch that is not a list; see `passing`."""
        return self


class Rows(Batch):
    """Rows of at least one column; iteration yields tuples.

    Attributes:
        columns: lists of equal length, which belong to the rows from now on.
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

    def encode(self) -> bytes:
        try:
            return TUPLES + encode_loosely(self.columns, 1) if len(self) else PLAIN + encode_loosely([])
        except NotCarried:  # in columns, the rows may be nested too deeply, so encode them as a list of tuples
            return PLAIN + encode_loosely(self.listed())

    def joined(self, pieces: Sequence[Rows]) -> Any:
        if len({len(piece.columns) for piece in pieces}) > 1:
            return [row for piece in pieces for row in piece.listed()]
        columns = zip(*[piece.columns for piece in pieces], strict=True)
        return Rows([list(chain.from_iterable(parts)) for parts in columns])

    def listed(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples; every call returns the same tuples."""
        if self._listed is None:
            self._listed = list(zip(*self.columns, strict=True))
        return self._listed

    def keys_at(self, item: int | None) -> list[Any] | None:
        return self.columns[item].copy() if item is not None and 0 <= item < len(self.columns) else None


class Counted(Batch):
    """Keys, and how many records each of them stands for, if a reader would only count the records.

    Attributes:
        keys: canonical keys.
        counts: positive integers, one per key.
    """

    __slots__ = ("keys", "counts")

    def __init__(self, keys: list[Any], counts: list[int]) -> None:
        invariant(len(keys) == len(counts), "each key has a count", keys=len(keys), counts=len(counts))
        self.keys = keys
        self.counts = counts

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Any]:
        raise NotCarried("its sender now counts records, but did not before")

    def __getitem__(self, part: slice) -> Counted:
        return Counted(self.keys[part], self.counts[part])

    def encode(self) -> bytes:
        return COUNTED + encode_loosely([self.keys, self.counts])

    def joined(self, pieces: Sequence[Counted]) -> Counted:
        return Counted(
            [key for piece in pieces for key in piece.keys], [count for piece in pieces for count in piece.counts]
        )

    def keys_at(self, item: int | None) -> list[Any]:
        return self.keys

    def passing(self, passes: Passes) -> Counted:
        """Return the keys that pass; each other key is reported as one failure for all of its records."""
        kept = [place for place, key in enumerate(self.keys) if passes(key, iter(()))]
        return Counted([self.keys[place] for place in kept], [self.counts[place] for place in kept])


def listed(records: Any) -> Any:
    """Return `Rows` as a list of tuples, and anything else unchanged."""
    return records.listed() if isinstance(records, Batch) else records


def copied(records: Any, copy: Callable[[Any], Any] | None = None) -> Any:
    """Return a new list with the records, each copied with `copy` if that is set; return a `Batch` unchanged."""
    return records if isinstance(records, Batch) else list(records if copy is None else map(copy, records))


def joined(pieces: Sequence[Any]) -> Any:
    """Return all records, in order, as one batch.

    Raises:
        NotCarried: vectors have different columns, or some records are `Counted` and others are not.
    """
    if len(pieces) == 1:
        return pieces[0]
    if pieces and isinstance(pieces[0], Batch) and len(set(map(type, pieces))) == 1:
        return pieces[0].joined(pieces)
    records: list[Any] = []
    for piece in pieces:
        records += listed(piece)
    return records


def passing(records: Any, passes: Passes, output: Iterable[Any]) -> Any:
    """Return the records for which `passes` is true.

    Args:
        output: the output of a stage to which the records belong, in the same order but interleaved with other records.
    """
    records = listed(records)
    if isinstance(records, Batch):
        return records.passing(passes)
    places = iter(enumerate(output))
    return [record for record in records if passes(record, places)]
