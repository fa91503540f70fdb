"""The material of all checks: a source under test, the elements that its input holds, and readers of them.

A check reads as a source's task does: it opens a reader at the position and the mark of a checkpoint, asks for
elements until it has those that it wants, and keeps the mark of each position. The death of a task is a reader that is
abandoned, or a process that is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from causal.cut import Mark
from causal.errors import CausalError, Unavailable
from causal.records.unreadable import Unreadable
from operators.source import PartitionReader, Source, SourceContext

WAIT_S, LOOK_S = 20.0, 0.02
"""The longest wait for an element that the input holds, and the longest pause between two reads."""
QUIET_READS, QUIET_S = 5, 0.05
"""The reads, and the pause between them, after which no element is expected any more."""


class NotConforming(AssertionError):
    """The error raised when a source breaks a promise; the message names the promise."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The position of one partition in a checkpoint, and its mark, if the reader has given one."""

    position: int = 0
    mark: Mark | None = None


BEGINNING = Checkpoint()


@dataclass(slots=True)
class Subject:
    """A source under test, and what its input holds.

    Args:
        make: returns a new source object over the same input, as another process of the job has it.
        holds: returns all elements that a partition of the input holds now, in order; for what is not a record, any
            `Unreadable`. There should be at least 20 in each partition, and gaps, if the system has any: deleted
            elements, elements of aborted transactions, empty lines.
        job_directory: an empty directory.
        prepare: starts or performs the source's own process for the job directory, if it has one (`companions`).
        extend: appends a few elements to the input, after which `holds` returns these, too.
        grow: adds a partition with at least one element, for a source that asks for its partitions.
        expire: makes the input forget the elements of a partition before a position, as retention does.
        away: a context in which the input's server cannot be reached.
        restart: stops the input's server and starts it again.
        acknowledged: returns how many elements of a partition the input's system may forget, or counts as done,
            because the source has acknowledged them.
        ingest: takes elements from a system that delivers each only once, and calls its argument with each element that
            the system may forget; it runs in a process that is killed, so it may never end.
    """

    make: Callable[[], Source[Any]]
    holds: Callable[[int], Sequence[Any]]
    job_directory: Path = field(default_factory=Path)
    prepare: Callable[[], object] = lambda: None
    extend: Callable[[], object] | None = None
    grow: Callable[[], object] | None = None
    expire: Callable[[int, int], object] | None = None
    away: Callable[[], AbstractContextManager[object]] | None = None
    restart: Callable[[], object] | None = None
    acknowledged: Callable[[int], int] | None = None
    ingest: Callable[[Callable[[Any], None]], object] | None = None
    fixed: int = field(default=0, init=False)

    def context(self, at: Checkpoint = BEGINNING, directory: Path | None = None) -> SourceContext:
        """Return the context of a task that continues from a checkpoint."""
        began_ns = time.monotonic_ns() - 10**12
        place = self.job_directory if directory is None else directory
        return SourceContext("source", place, began_ns, position=at.position, mark=at.mark)

    def opened(self, partition: int = 0, at: Checkpoint = BEGINNING, directory: Path | None = None) -> Reading:
        """Open a reader of a partition as a new process would that continues from a checkpoint."""
        return Reading(self.source().open(partition, self.context(at, directory)), at)

    def source(self) -> Source[Any]:
        """Return a new source object with the number of partitions that the job has fixed, if it fixes one."""
        source = self.make()
        if source.asks_partitions:
            self.fixed = self.fixed or source.partitions
            source.partitions = self.fixed
        return source

    def partitions(self) -> range:
        """Return the partitions that the job reads."""
        return range(self.source().partitions)

    def expect(self, partition: int, first: int, elements: Sequence[Any], promise: str) -> None:
        """Require that these are the elements of a partition from position `first` on."""
        expected = self.holds(partition)[first : first + len(elements)]
        for position, (one, other) in enumerate(zip(elements, expected, strict=False), first):
            if not same(one, other):
                raise NotConforming(f"{promise}: position {position} is {one!r:.200}, not {other!r:.200}")
        expect(len(expected) == len(elements), promise, f"{len(elements)} elements instead of {len(expected)}")


class Reading:
    """A reader, and the elements that it has given since a checkpoint.

    Attributes:
        elements: the elements from the checkpoint's position on.
        ended: whether the partition ends after them.
    """

    def __init__(self, reader: PartitionReader, at: Checkpoint) -> None:
        self.reader = reader
        self.first = at.position
        self.elements: list[Any] = []
        self.ended = False
        self._marks: dict[int, Mark | None] = {at.position: at.mark}

    @property
    def position(self) -> int:
        """The position of the element that is read next."""
        return self.first + len(self.elements)

    def checkpoint(self, position: int) -> Checkpoint:
        """Return the checkpoint of a task that has delivered everything below `position`."""
        return Checkpoint(position, self._marks[position])

    def once(self, count_max: int) -> bool:
        """Read once; return whether elements came, or the end.

        Raises:
            CausalError: the reader's own error.
        """
        position = self.position
        read = self.reader.read(position, count_max)
        if read is None:
            return False
        records: list[Any] = list(read.records)  # type: ignore[arg-type]  # vectors yield their rows
        marks = list(read.marks)
        expect(len(records) <= count_max, "a read returns at most the elements that were asked for", str(len(records)))
        expect(
            bool(records) or read.ended or bool(marks), "a read without elements returns None", "it returned no records"
        )
        expect(len(marks) in (0, max(1, len(records))), "each element has a mark, or none has", f"{len(marks)} marks")
        if marks and not records:
            self._marks[position] = marks[0]
        for number in range(len(records)):
            self._marks[position + number + 1] = marks[number] if marks else None
        self.elements += records
        self.ended = read.ended
        return bool(records) or read.ended

    def until(
        self, position: int, count_max: int = 7, promise: str = "an element that the input holds is read"
    ) -> None:
        """Read until everything below `position` has come, also while the input is slow.

        Raises:
            NotConforming: it has not come in time, or the partition ends before.
        """
        due_s, problem = time.monotonic() + WAIT_S, ""
        while self.position < position:
            try:
                came = self.once(min(count_max, position - self.position))
            except Unavailable as unavailable:
                came, problem = False, str(unavailable)
            if came:
                expect(not self.ended or self.position >= position, promise, f"the end came at {self.position}")
                continue
            detail = f"position {self.position} did not come in {WAIT_S:.0f} s {problem}"
            expect(time.monotonic() < due_s, promise, detail)
            pause_s = self.reader.ready_in_s(self.position)
            expect(pause_s >= 0, "the time until the next read is not negative", f"{pause_s}")
            time.sleep(min(pause_s, LOOK_S))

    def expect_no_more(self, promise: str) -> None:
        """Require that nothing follows what has been read."""
        for _ in range(QUIET_READS):
            before = self.position
            try:
                self.once(7)
            except Unavailable:
                continue
            expect(self.position == before, promise, f"position {before} is {self.elements[-1:]!r:.200}")
            if self.ended:
                return
            time.sleep(QUIET_S)

    def close(self) -> None:
        """Close the reader."""
        self.reader.close()


def expect(holds: bool, promise: str, detail: str) -> None:
    """Raise `NotConforming` unless `holds` is true."""
    if not holds:
        raise NotConforming(f"{promise}: not so ({detail})")


def refused(step: Callable[[], object], promise: str, *kinds: type[CausalError]) -> CausalError:
    """Return the error of one of these kinds that `step` raises.

    Raises:
        NotConforming: it raises none or another one.
    """
    expected = " or ".join(each.__name__ for each in kinds)
    try:
        step()
    except kinds as problem:
        return problem
    except CausalError as problem:
        raise NotConforming(f"{promise}: expected {expected}, got {type(problem).__name__}: {problem}") from problem
    raise NotConforming(f"{promise}: expected {expected}, nothing was raised")


def spelled(element: Any) -> str:
    """Return an element as text; two that are not records are alike, because only the source knows their reasons."""
    return "not a record" if type(element) is Unreadable else repr(element)


def same(one: Any, other: Any) -> bool:
    """Return whether two elements are equal in value and type, down to their items; those that are not records are."""
    if type(one) is not type(other):
        return False
    if type(one) is Unreadable:
        return True
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return bool(one == other) or (one != one and other != other)
