"""The operators of a chain as batch loops: a list of records in, a list of records out.

Only the user's function runs per record.  Nothing tracks which record is under way: a list iterator
knows how many it has left, so the record on which a function raised is found afterwards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import length_hint, truth
from typing import Any

from causal.errors import CausalError
from causal.ports import Services
from causal.rows import Rows
from causal.values import decode, encode
from operators.failures import NO_KEY, Failures
from operators.ownership import SCALARS, own
from operators.state import FragmentJob, Table

_NOT_RECORDS = (str, bytes, dict)

Due = tuple[int, int, int, Any]
"""(time in ns, 0 for a timer and 1 for a window, sequence or ordinal, what the stage needs): fired in this order."""


class Ended(RuntimeError):
    """User code raised StopIteration, which must not end a batch in silence."""


def apply(
    fn: Callable[[Any], Any], records: Sequence[Any], failed: Callable[[int, Exception], None]
) -> tuple[list[Any], list[int]]:
    """`fn` of each record, and the indices on which it raised, which `failed` was told (it may raise to stop)."""
    made: list[Any] = []
    lost: list[int] = []
    rows = iter(records)
    while len(made) + len(lost) < len(records):
        try:
            made.extend(map(fn, rows))
            if len(made) + len(lost) == len(records):
                break
            raise Ended("StopIteration was raised")  # map() took it for the end
        except CausalError:
            raise
        except Exception as problem:
            index = len(records) - length_hint(rows) - 1
            lost.append(index)
            failed(index, problem)
    return made, lost


def without(records: Sequence[Any], lost: Sequence[int]) -> list[Any]:
    """The records but those at the indices `lost`."""
    gone = set(lost)
    return [record for index, record in enumerate(records) if index not in gone]


def check_records(result: Any, operator: str) -> None:
    """Refuse what can be iterated but is no iterable of records.

    Raises:
        TypeError: with the mend.
    """
    if isinstance(result, _NOT_RECORDS):
        kind = type(result).__name__
        raise TypeError(f"{operator!r} gave a {kind} where an iterable of records is wanted; yield it, or return [it]")


class Stage:
    """One operator in one task.

    Attributes:
        ordinal: its place in the chain.
        parent: the stage whose output is this one's input; None for the first.
        traced: whether a fused stage follows, so that `source_of` may be asked.
        traces: whether `source_of` can tell; false where whole batches are worked on.
        takes_rows: whether `run` may be given `Rows` for a list, when it is given keys.
    """

    traces = True
    takes_rows = False

    def __init__(self, name: str, ordinal: int, failures: Failures) -> None:
        self.name = name
        self.ordinal = ordinal
        self.failures = failures
        self.parent: Stage | None = None
        self.traced = False

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        """What the operator makes of a batch: a list or `Rows`.  `keys` are the records', None without key_by."""
        return records

    def source_of(self, index: int) -> int:
        """Index of the input record that output `index` of the last `run` came from."""
        return index

    def root_index(self, index: int) -> int | None:
        """Index, among the records of the event, of what led to this stage's input record `index`."""
        if not self.failures.delivers:
            return None
        stage: Stage = self
        while stage.parent is not None:
            stage = stage.parent
            if not stage.traces:
                return None
            index = stage.source_of(index)
        return index

    def failed(self, index: int, record: Any, problem: Exception, key: Any = NO_KEY) -> None:
        """User code raised on input record `index`: see `Failures.failed`."""
        self.failures.failed(self.name, key, self.root_index(index), record, problem)

    # What stages with time or state have more.

    def open(self) -> None:
        """Called once, before the first event."""

    def begin(self, services: Services) -> None:
        """An event begins."""

    def end(self) -> None:
        """The event is over."""

    def next_ns(self) -> int | None:
        """When its earliest timer or window is due."""
        return None

    def due(self, due_ns: int) -> list[Due]:
        """What is due."""
        return []

    def fire(self, entries: Sequence[Due]) -> list[Any]:
        """Fire entries that `due` gave, in their order; returns records."""
        return []

    def finish(self) -> list[Any]:
        """The input has ended; returns the last records."""
        return []

    def tables(self) -> list[Table]:
        """Its keyed tables, in a fixed order."""
        return []

    def freeze(self, full: bool) -> tuple[dict[str, Any], list[FragmentJob]]:
        """What it must remember: a few values now, and jobs that encode the rest."""
        return {}, [table.snapshot(full) for table in self.tables()]

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        """Take over the few values that `freeze` gave; with `full`, forget everything else first."""
        if full:
            for table in self.tables():
                table.clear()

    def loaders(self) -> dict[str, Callable[[bytes], None]]:
        """By table name: what takes over a fragment."""
        return {table.name: table.load for table in self.tables()}

    def restored(self) -> None:
        """All fragments of a snapshot have been loaded."""


class MapStage(Stage):
    """`map(name, fn)`."""

    def __init__(self, name: str, ordinal: int, failures: Failures, fn: Callable[[Any], Any]) -> None:
        super().__init__(name, ordinal, failures)
        self._fn = fn
        self._lost: list[int] = []

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        made, self._lost = apply(self._fn, records, lambda index, problem: self.failed(index, records[index], problem))
        return made

    def source_of(self, index: int) -> int:
        for lost in self._lost:
            index += lost <= index
        return index


class FilterStage(Stage):
    """`filter(name, fn)`."""

    def __init__(self, name: str, ordinal: int, failures: Failures, fn: Callable[[Any], Any]) -> None:
        super().__init__(name, ordinal, failures)
        self._fn = fn
        self._kept: Sequence[int] = ()

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        def failed(index: int, problem: Exception) -> None:
            self.failed(index, records[index], problem)

        answers, lost = apply(self._fn, records, failed)
        places: Sequence[int] = without(range(len(records)), lost) if lost else range(len(records))
        flags, vague = apply(truth, answers, lambda index, problem: failed(places[index], problem))
        if vague:
            places = without(places, vague)
        if lost or vague or self.traced:
            self._kept = list(compress(places, flags))
            return [records[index] for index in self._kept]
        return list(compress(records, flags))

    def source_of(self, index: int) -> int:
        return self._kept[index]


class FlatMapStage(Stage):
    """`flat_map(name, fn)`: `fn` gives an iterable of records, or None for none."""

    def __init__(self, name: str, ordinal: int, failures: Failures, fn: Callable[[Any], Iterable[Any] | None]) -> None:
        super().__init__(name, ordinal, failures)
        self._fn = fn
        self._marks: list[int] = []

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        fn, out, marks = self._fn, list[Any](), list[int]()
        rows = iter(records)
        while len(marks) < len(records):
            try:
                for record in rows:
                    made = fn(record)
                    if made is not None:
                        if isinstance(made, _NOT_RECORDS):
                            check_records(made, self.name)
                        out.extend(made)
                    marks.append(len(out))
            except CausalError:
                raise
            except Exception as problem:
                marks.append(len(out))
                index = len(records) - length_hint(rows) - 1
                self.failed(index, records[index], problem)
        self._marks = marks
        return out

    def source_of(self, index: int) -> int:
        return bisect_right(self._marks, index)


class CountStage(Stage):
    """`count(name)`: emits `(key, n)`, n being how many records of the key have come."""

    takes_rows = True

    def __init__(self, name: str, ordinal: int, failures: Failures, key_groups: int) -> None:
        super().__init__(name, ordinal, failures)
        self._table = Table(name, name, key_groups, {}, drop_empty=False)

    def run(self, records: Any, keys: list[Any] | None) -> Any:
        keys = keys or []
        self._table.touch(keys)
        counts: dict[Any, int] = self._table.values
        get, numbers = counts.get, list[int]()
        append = numbers.append
        for key in keys:
            counts[key] = count = get(key, 0) + 1
            append(count)
        return Rows([keys, numbers])

    def tables(self) -> list[Table]:
        return [self._table]


NO_INITIAL: Any = object()


class ReduceStage(Stage):
    """`reduce(name, fn, initial)`: emits `(key, accumulated)` for each record.

    The state of a key begins as a copy of `initial`, or as what `initial()` gives when it can be called;
    without `initial` the first record of a key is its first state, and is emitted as it is.
    """

    def __init__(
        self, name: str, ordinal: int, failures: Failures, fn: Callable[[Any, Any], Any], initial: Any, key_groups: int
    ) -> None:
        super().__init__(name, ordinal, failures)
        self._fn = fn
        self._table = Table(name, name, key_groups, {}, drop_empty=False)
        self._lost: list[int] = []
        self._begin_with: Callable[[Any], Any]
        if initial is NO_INITIAL:
            self._begin_with = own
        elif callable(initial):
            self._begin_with = lambda record: fn(initial(), record)
        else:
            body = encode(initial)
            self._begin_with = lambda record: fn(decode(body), record)

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        keys = keys or []
        self._table.touch(keys)
        state, fn, begin_with = self._table.values, self._fn, self._begin_with
        totals, lost = list[Any](), list[int]()
        append = totals.append
        rows = iter(records)
        pairs = zip(keys, rows, strict=True)
        while len(totals) + len(lost) < len(records):
            try:
                for key, record in pairs:
                    state[key] = total = fn(state[key], record) if key in state else begin_with(record)
                    append(total if type(total) in SCALARS else own(total))
            except CausalError:
                raise
            except Exception as problem:
                index = len(records) - length_hint(rows) - 1
                lost.append(index)
                self.failed(index, records[index], problem, keys[index])
        self._lost = lost
        return Rows([without(keys, lost) if lost else keys, totals])

    def source_of(self, index: int) -> int:
        for lost in self._lost:
            index += lost <= index
        return index

    def tables(self) -> list[Table]:
        return [self._table]
