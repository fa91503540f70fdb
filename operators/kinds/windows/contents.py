"""The contents of windows by (key, slot): accumulators, or all records if a function processes them.

Both kinds are tables: a checkpoint writes the accumulators that changed or the records that arrived.  If failing
records become dead letters, a record is added either to all of its windows or to none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain, filterfalse, groupby
from operator import itemgetter
from typing import Any

from causal.errors import CausalError, invariant
from operators.kinds.windows.aggregates import Aggregate, Count, keeps_records
from operators.kinds.windows.task_windows import Window, WindowFunction, results_of
from operators.records.ownership import SCALARS, always_fits, copy_containers
from operators.records.storable import stored
from operators.stage.failures import NO_KEY, Failures
from operators.stage.stages import last_index
from operators.state.due_index import Pair
from operators.state.keyed_tables import KeyedTable
from operators.state.lists import ListTable
from operators.state.slots import PairTable, inspected

Failed = Callable[[int, Pair, Exception], None]
"""A function of (place among the rows, window's pair, exception in user code) that handles the failure."""
_ABSENT: Any = object()


class Contents(ABC):
    """The contents of the windows of one operator.

    Attributes:
        table: the table with the contents of all windows.
        values: (key, slot) -> the window's contents; a pair without records has no entry.
        refuses: whether user code may refuse a record without failing the job.
        shares: whether contents may include part of a record, so that each window needs its own copy of the record.
    """

    refuses = False
    shares = True

    def __init__(self, table: KeyedTable, operator: str, keyed: bool, failures: Failures) -> None:
        self.table = table
        self.values: dict[Pair, Any] = table.values
        self._operator = operator
        self._keyed = keyed
        self._failures = failures

    def add_counted(self, counts: Mapping[Pair, int]) -> None:
        """Add numbers of records to windows that only count their records."""
        self.table.touch(counts)
        values = self.values
        for pair, count in counts.items():
            values[pair] = values.get(pair, 0) + count

    def add(
        self, pairs: Sequence[Pair], rows: Sequence[Any], failed: Failed, places: Sequence[int] | None = None
    ) -> list[Pair]:
        """Add each row to its window, in order; return the pairs that had no contents before.

        Args:
            places: adjacent rows with equal places are the same record; if None, each row is a separate record.
        """
        distinct = dict.fromkeys(pairs)
        fresh = list(filterfalse(self.values.__contains__, distinct))
        if not self.refuses:
            self._add(distinct, fresh, pairs, rows, failed)
            return fresh
        self.table.touch(distinct)
        self._add_records(pairs, rows, failed, range(len(rows)) if places is None else places)
        return [pair for pair in fresh if pair in self.values]

    def extend(self, groups: Mapping[Pair, Sequence[int]], rows: Sequence[Any], failed: Failed) -> None:
        """Add rows to windows whose contents do not refuse records.

        Args:
            groups: the indices of each window's rows.
        """
        pairs = [pair for pair, indices in groups.items() for _ in indices]
        order = list(chain.from_iterable(groups.values()))
        self.add(pairs, [rows[index] for index in order], lambda index, *problem: failed(order[index], *problem))

    @abstractmethod
    def _add(
        self,
        distinct: Collection[Pair],
        fresh: Sequence[Pair],
        pairs: Sequence[Pair],
        rows: Sequence[Any],
        failed: Failed,
    ) -> None:
        """Add each row to its window; called only if no record can be refused.

        Args:
            distinct: the windows to which rows are added.
            fresh: those of the windows that have no contents yet.
        """

    def _add_records(self, pairs: Sequence[Pair], rows: Sequence[Any], failed: Failed, places: Sequence[int]) -> None:
        for _, same in groupby(range(len(rows)), key=places.__getitem__):
            indices = list(same)
            try:
                self.put([pairs[index] for index in indices], rows[indices[0]])
            except CausalError:
                raise
            except Exception as problem:
                failed(indices[0], pairs[indices[0]], problem)

    def opening(self, pairs: Collection[Pair]) -> None:
        """Prepare these windows for calls of `put`."""

    @abstractmethod
    def put(self, pairs: Sequence[Pair], record: Any) -> None:
        """Add one record to windows prepared by `opening`; if user code raises, none of them contains the record."""

    def put_merged(self, pairs: Sequence[Pair], record: Any) -> None:
        """Merge these windows into the first, remove the others, and add a record.

        If user code raises, nothing changes. This method is called only if `refuses` is true.
        """
        invariant(False, "only contents that may refuse a record take it one by one", operator=self._operator)

    def merge(self, into: Pair, other: Pair) -> None:
        """Append the contents of `other` to those of `into`, and remove `other`."""
        if other in self.values:
            self.table.touch((into, other))
            content = self.values.pop(other)
            self.values[into] = self._joined([self.values[into], content]) if into in self.values else content

    @abstractmethod
    def _joined(self, contents: Sequence[Any]) -> Any:
        """Combine the contents of several windows, the earliest first."""

    def drop(self, pairs: Iterable[Pair]) -> None:
        """Remove the contents of these windows."""
        present = [pair for pair in pairs if pair in self.values]
        self.table.touch(present)
        for pair in present:
            del self.values[pair]

    def emit(self, pair: Pair, window: Window, out: list[Any], keeps: bool) -> None:
        """Append the window's result to `out`; `keeps` states whether its contents are needed again."""
        content = self.values[pair]
        if type(content) not in SCALARS:  # user code may change the contents
            if keeps:
                content = copy_containers(content)
            else:
                self.table.touch((pair,))
        self._emit_each((pair,), (content,), window, out)

    def emit_last(self, pairs: Sequence[Pair], window: Window, out: list[Any]) -> None:
        """Append the results for several keys of one window to `out`, and remove their contents."""
        self.table.touch(pairs)
        self._emit_each(pairs, map(self.values.pop, pairs), window, out)

    def _emit_each(self, pairs: Sequence[Pair], contents: Iterable[Any], window: Window, out: list[Any]) -> None:
        for pair, content in zip(pairs, contents, strict=True):
            before = len(out)
            try:
                self._emit(pair[0], content, window, out)
            except CausalError:
                raise
            except Exception as problem:
                del out[before:]
                self.refused(pair, window, problem)

    def emit_all(self, pairs: Sequence[Pair], window: Window, out: list[Any]) -> None:
        """Append the result for several pairs of one key as one window, the earliest pair first; keep the pairs."""
        before = len(out)
        try:
            contents = list(map(self.values.__getitem__, pairs))
            if self.shares:  # user code may change the contents
                contents = list(map(copy_containers, contents))
            self._emit(pairs[0][0], self._joined(contents), window, out)
        except CausalError:
            raise
        except Exception as problem:
            del out[before:]
            self.refused(pairs[0], window, problem)

    @abstractmethod
    def _emit(self, key: Any, content: Any, window: Window, out: list[Any]) -> None:
        """Append the result for some contents to `out`."""

    def refused(self, pair: Pair, window: Window, problem: Exception) -> None:
        """Stop the job or write a dead letter, because user code raised for the whole window."""
        letter = {"window": [window.start, window.end]}
        self._failures.failed(self._operator, pair[0] if self._keyed else NO_KEY, None, letter, problem)


class Accumulated(Contents):
    """Contents that consist of one accumulator per window."""

    def __init__(
        self, table: KeyedTable, operator: str, keyed: bool, failures: Failures, aggregate: Aggregate[Any, Any]
    ):
        super().__init__(table, operator, keyed, failures)
        self._aggregate = aggregate
        self._counts = type(aggregate) is Count
        self.refuses = failures.set_aside and not self._counts
        self.shares = keeps_records(aggregate)

    def _add(
        self,
        distinct: Collection[Pair],
        fresh: Sequence[Pair],
        pairs: Sequence[Pair],
        rows: Sequence[Any],
        failed: Failed,
    ) -> None:
        if self._counts:
            self.add_counted(Counter(pairs))
            return
        self.table.touch(distinct)
        values = self.values
        add, initial, get, rest = self._aggregate.add, self._aggregate.initial, values.get, iter(rows)
        for pair, record in zip(pairs, rest, strict=True):
            try:
                accumulator = get(pair, _ABSENT)
                values[pair] = add(initial() if accumulator is _ABSENT else accumulator, record)
            except CausalError:
                raise
            except Exception as problem:
                failed(last_index(rows, rest), pair, problem)

    def opening(self, pairs: Collection[Pair]) -> None:
        self.table.touch(pairs)

    def put(self, pairs: Sequence[Pair], record: Any) -> None:
        if len(pairs) == 1:
            self.values[pairs[0]] = self._with(self.values.get(pairs[0], _ABSENT), record)
            return
        records = [copy_containers(record) if self.shares else record for _ in pairs]
        accumulators = [
            self._with(self.values.get(pair, _ABSENT), each) for pair, each in zip(pairs, records, strict=True)
        ]
        self.values.update(zip(pairs, accumulators, strict=True))

    def put_merged(self, pairs: Sequence[Pair], record: Any) -> None:
        values = self.values
        known = [copy_containers(values[pair]) for pair in pairs if pair in values]
        self.table.touch(pairs)
        values[pairs[0]] = self._with(self._joined(known) if known else _ABSENT, record)
        for pair in pairs[1:]:
            values.pop(pair, None)

    def _with(self, accumulator: Any, record: Any) -> Any:
        """Return an accumulator with one record added; the accumulator is copied first if records may be refused."""
        if accumulator is _ABSENT:
            accumulator = self._aggregate.initial()
        elif self.refuses and type(accumulator) not in SCALARS:
            accumulator = copy_containers(accumulator)
        grown = self._aggregate.add(accumulator, record)
        return stored(grown, "its accumulator") if self.refuses and not always_fits(grown) else grown

    def _joined(self, contents: Sequence[Any]) -> Any:
        if len(contents) == 1:
            return contents[0]
        merge = self._aggregate.merge
        invariant(merge is not None, "an aggregate that is merged has a function for it", operator=self._operator)
        return contents[0] if merge is None else reduce(merge, contents)

    def _emit(self, key: Any, content: Any, window: Window, out: list[Any]) -> None:
        result = self._aggregate.result
        value = content if result is None else result(content)
        out.append((key, value if type(value) in SCALARS else copy_containers(value), window.start, window.end))


class Listed(Contents):
    """Contents that consist of all records of each window, for a function that processes them."""

    def __init__(self, table: ListTable, operator: str, keyed: bool, failures: Failures, fn: WindowFunction) -> None:
        super().__init__(table, operator, keyed, failures)
        self._lists = table
        self._fn = fn

    def _add(
        self,
        distinct: Collection[Pair],
        fresh: Sequence[Pair],
        pairs: Sequence[Pair],
        rows: Sequence[Any],
        failed: Failed,
    ) -> None:
        more: defaultdict[Pair, list[Any]] = defaultdict(list)
        for pair, record in zip(pairs, rows, strict=True):
            more[pair].append(record)
        for pair, records in more.items():
            self._lists.extend(pair, records)

    def extend(self, groups: Mapping[Pair, Sequence[int]], rows: Sequence[Any], failed: Failed) -> None:
        for pair, indices in groups.items():
            self._lists.extend(pair, [rows[index] for index in indices])

    def put(self, pairs: Sequence[Pair], record: Any) -> None:
        for pair in pairs:
            self._lists.append(pair, record if len(pairs) == 1 else copy_containers(record))

    def _joined(self, contents: Sequence[Any]) -> Any:
        return list(chain.from_iterable(contents))

    def _emit(self, key: Any, content: Any, window: Window, out: list[Any]) -> None:
        out += results_of(self._fn, key, content, window, self._operator)


class _ByWindow(ListTable):
    """Lists by (key, slot); each belongs to the key group of its key."""

    __slots__ = ()

    def inspect(self, key: Any) -> Any:
        """Return [slot, records] for each window of the key, in ascending order."""
        return inspected(self.values, key, self.slot_index)


def contents_of(
    subject: Aggregate[Any, Any] | WindowFunction, operator: str, keyed: bool, key_groups: int, failures: Failures
) -> Contents:
    """Return the contents for windows with an aggregate or with a function of (key, records, window)."""
    if isinstance(subject, Aggregate):
        return Accumulated(PairTable(f"{operator}:panes", operator, key_groups), operator, keyed, failures, subject)
    table = _ByWindow(f"{operator}:contents", operator, key_groups, group_of=itemgetter(0))
    return Listed(table, operator, keyed, failures, subject)
