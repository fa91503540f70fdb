"""A slice of a source's partition: consecutive elements, as its reader returned them, in a bundle file (0058)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from causal.cut import Mark
from causal.errors import CorruptData, PeerViolation, Unavailable
from causal.records.batch import decode_records, encode_records
from causal.records.unreadable import Unreadable
from causal.records.values import NotCarried, decode, encode
from causal.records.vectors import Vectors
from causal.storage.files import joined, parts_of
from operators.source import Read


@dataclass(slots=True)
class InputSlice:
    """Consecutive elements of a partition.

    Attributes:
        start: the position of the first one.
        stop: the position after the last one.
        ended: whether the partition ends there.
        size: the size in bytes of the encoded elements.
    """

    source: str
    partition: int
    start: int
    stop: int = 0
    ended: bool = False
    size: int = 0
    _runs: list[_Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stop = self.start

    def add(self, position: int, records: Any, ended: bool, marks: Sequence[Mark]) -> None:
        """Add the result of a read; elements that are there already are left out.

        Raises:
            NotCarried: MessagePack cannot encode a record.
        """
        known = self.stop - position
        if known:
            records, marks = records[known:], marks[known:]
        if len(records) or (marks and ended):
            run = _Run(self.stop, len(records), list(marks), *_encoded(records))
            self._runs.append(run)
            self.stop += run.count
            self.size += len(run.body)
        self.ended = ended or self.ended

    def packed(self) -> bytes:
        """Return the slice as bytes."""
        runs = [[run.first, run.count, run.marks, run.unreadable] for run in self._runs]
        head = encode([self.source, self.partition, self.start, self.stop, self.ended, runs])
        return joined([head, *(run.body for run in self._runs)])

    @classmethod
    def of(cls, packed: bytes, where: str) -> InputSlice:
        """Return the slice that `packed` returned.

        Raises:
            CorruptData: it is damaged.
        """
        try:
            head, *bodies = parts_of(packed, where)
            fields: Any = decode(head)
            source, partition, start, stop, ended, runs = fields
            kinds = [type(each) for each in (source, partition, start, stop, ended)]
            if kinds != [str, int, int, int, bool]:
                raise ValueError("other types")
            slice = cls(source, partition, start)
            for (first, count, marks, unreadable), body in zip(runs, bodies, strict=True):
                if type(count) is not int or first != slice.stop or not {type(mark) for mark in marks} <= {int, str}:
                    raise ValueError("other elements")
                slice._runs.append(_Run(first, count, marks, unreadable, body))
                slice.stop += count
            if slice.stop != stop:
                raise ValueError("other positions")
            slice.ended = ended
            return slice
        except (PeerViolation, ValueError, TypeError) as problem:
            raise CorruptData(f"{where} is not a slice of a source ({problem}); copy the file again") from None

    def replaced(self, replace: Callable[[int, Any], Any]) -> InputSlice:
        """Return a slice in which each record is `replace(position, record)`.

        Raises:
            NotCarried: MessagePack cannot encode a record that `replace` returns.
        """
        slice = InputSlice(self.source, self.partition, self.start)
        for run in self._runs:
            slice.add(run.first, _replaced(run, replace), False, run.marks)
        slice.ended = self.ended
        return slice

    def reader(self, where: str) -> SliceReader:
        """Return a reader of the slice.

        Args:
            where: the file that contains it, as shown in errors.
        """
        return SliceReader(self, self._runs, where)


@dataclass(slots=True)
class _Run:
    """Consecutive elements that were read together; elements that could not be read are None in `body`."""

    first: int
    count: int
    marks: list[Mark]
    unreadable: list[list[Any]]
    body: bytes

    def records(self) -> Any:
        """Return the elements.

        Raises:
            PeerViolation: they are not those of a run.
        """
        records = decode_records(self.body) if self.count else []
        if len(records) != self.count:
            raise PeerViolation(f"{len(records)} elements instead of {self.count}")
        try:
            for place, where, why, raw, option in self.unreadable:
                records[place] = Unreadable(where, why, raw, option)
        except (ValueError, TypeError, IndexError) as problem:
            raise PeerViolation(str(problem)) from None
        return records


def _encoded(records: Any) -> tuple[list[list[Any]], bytes]:
    if not len(records):
        return [], b""
    if type(records) is not list or Unreadable not in map(type, records):
        return [], encode_records(records)
    unreadable = [
        [place, each.where, each.why, each.raw, each.option]
        for place, each in enumerate(records)
        if type(each) is Unreadable
    ]
    return unreadable, encode_records([None if type(each) is Unreadable else each for each in records])


def _replaced(run: _Run, replace: Callable[[int, Any], Any]) -> Any:
    records = run.records()
    if isinstance(records, Vectors):
        rows = [replace(run.first + place, row) for place, row in enumerate(records.batch.to_pylist())]
        try:
            return Vectors(type(records.batch).from_pylist(rows, schema=records.batch.schema))
        except (ValueError, TypeError, AttributeError) as problem:
            raise NotCarried(f"the columns cannot have this content ({problem}); keep their types") from None
    return [
        Unreadable(each.where, each.why, replace(run.first + place, each.raw), each.option)
        if type(each) is Unreadable
        else replace(run.first + place, each)
        for place, each in enumerate(records)
    ]


class SliceReader:
    """A reader of a slice, with the methods of `PartitionReader`; one run is decoded at a time."""

    def __init__(self, slice: InputSlice, runs: Sequence[_Run], where: str) -> None:
        self._slice = slice
        self._runs = runs
        self._where = where
        self._firsts = [run.first for run in runs]
        self._decoded: tuple[int, Any] = (-1, [])

    def read(self, position: int, count_max: int) -> Read:
        """Return elements from `position`.

        Raises:
            Unavailable: the slice does not have this position.
            CorruptData: the elements cannot be decoded.
        """
        own = self._slice
        place = bisect_right(self._firsts, position) - 1
        over = position == own.stop and own.ended
        if not own.start <= position <= own.stop or (position == own.stop and not over):
            raise Unavailable(
                f"{self._where} has positions {own.start} to {own.stop - 1} of source {own.source!r}, partition "
                f"{own.partition}, and not {position}; make it again with a longer part of the recording"
            )
        if over:
            last = self._runs[-1] if self._runs else None
            return Read([], 0, True, last.marks if last is not None and not last.count else ())
        run = self._runs[place]
        if self._decoded[0] != place:
            try:
                self._decoded = place, run.records()
            except PeerViolation as problem:
                raise CorruptData(f"{self._where}: the input is damaged ({problem}); copy the file again") from None
        first = position - run.first
        records = self._decoded[1][first : first + count_max]
        ended = own.ended and position + len(records) == own.stop
        return Read(records, 0, ended, run.marks[first : first + len(records)])

    def ready_in_s(self, position: int) -> float:
        """Return 0, because everything is there."""
        return 0.0

    def completed(self, position: int) -> None:
        """Do nothing, because a slice keeps everything."""

    def close(self) -> None:
        """Do nothing, because no resources are open."""
