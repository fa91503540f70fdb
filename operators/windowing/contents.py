"""What windows hold, by (key, slot): accumulators, or all records for a function.

Both are tables: of accumulators a checkpoint writes those that changed, of records those that came.  Where failing
records become dead letters, a record is in all of its windows or in none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from itertools import chain, groupby
from operator import itemgetter, length_hint
from typing import Any

from causal.errors import CausalError, invariant
from operators.failures import NO_KEY, Failures
from operators.keyed.lists import ListTable
from operators.ownership import SCALARS, own
from operators.slots import Pair
from operators.stages import check_records
from operators.state import Table
from operators.windowing.aggregates import Aggregate, Count, keeps_records
from operators.windows import Window, WindowFunction

Failed = Callable[[int, Pair, Exception], None]
"""(place among the rows, the window's pair, what the user's code raised)"""
_ABSENT: Any = object()


class Contents:
    """What the windows of one operator hold.

    Attributes:
        table: all of it.
        values: (key, slot) -> what is held; a pair without records is not there.
        refuses: whether the user's code may refuse a record while the job goes on.
        shares: whether what is held may be part of a record, so that each window needs a record of its own.
    """

    refuses = False
    shares = True

    def __init__(self, table: Table, operator: str, keyed: bool, failures: Failures) -> None:
        self.table = table
        self.values: dict[Pair, Any] = table.values
        self._operator = operator
        self._keyed = keyed
        self._failures = failures

    def add(
        self, pairs: Sequence[Pair], rows: Sequence[Any], failed: Failed, places: Sequence[int] | None = None
    ) -> list[Pair]:
        """Put each row into its window, in order; returns the pairs that had none before.

        Args:
            places: tells which rows are one record, by equal numbers beside one another; None: each is one.
        """
        distinct = dict.fromkeys(pairs)
        fresh = [pair for pair in distinct if pair not in self.values]
        if self.refuses:
            self.table.touch(distinct)
            self._add_records(pairs, rows, failed, range(len(rows)) if places is None else places)
        else:
            self._add(distinct, pairs, rows, failed)
        return [pair for pair in fresh if pair in self.values]

    def _add(self, distinct: Collection[Pair], pairs: Sequence[Pair], rows: Sequence[Any], failed: Failed) -> None:
        raise NotImplementedError

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
        """Records will be `put` into these windows."""

    def put(self, pairs: Sequence[Pair], record: Any) -> None:
        """Put one record into windows that are open; raises what the user's code raises, and is in none then."""
        raise NotImplementedError

    def put_merged(self, pairs: Sequence[Pair], record: Any) -> None:
        """Put a record into the first of these windows, behind what all of them hold; the others are gone.

        Raises what the user's code raises, and then nothing has changed.
        """
        raise NotImplementedError

    def merge(self, into: Pair, other: Pair) -> None:
        """What `other` holds goes behind what `into` holds, and `other` is gone."""
        if other in self.values:
            self.table.touch((into, other))
            held = self.values.pop(other)
            self.values[into] = self._joined([self.values[into], held]) if into in self.values else held

    def _joined(self, held: Sequence[Any]) -> Any:
        """What several windows hold, the earliest first, as one."""
        raise NotImplementedError

    def drop(self, pairs: Iterable[Pair]) -> None:
        """These windows hold nothing any more."""
        held = [pair for pair in pairs if pair in self.values]
        self.table.touch(held)
        for pair in held:
            del self.values[pair]

    def tell(self, pair: Pair, window: Window, out: list[Any], keeps: bool) -> None:
        """Put into `out` what the window amounts to; with `keeps` it goes on holding what it holds."""
        held = self.values[pair]
        if type(held) not in SCALARS:  # the user's code may change it
            if keeps:
                held = own(held)
            else:
                self.table.touch((pair,))
        before = len(out)
        try:
            self._tell(pair[0], held, window, out)
        except CausalError:
            raise
        except Exception as problem:
            del out[before:]
            self.refused(pair, window, problem)

    def tell_all(self, pairs: Sequence[Pair], window: Window, out: list[Any]) -> None:
        """The same of several pairs of one key, the earliest first, as if they were one; they are kept."""
        before = len(out)
        try:
            held = list(map(own, map(self.values.__getitem__, pairs)))
            self._tell(pairs[0][0], self._joined(held), window, out)
        except CausalError:
            raise
        except Exception as problem:
            del out[before:]
            self.refused(pairs[0], window, problem)

    def _tell(self, key: Any, held: Any, window: Window, out: list[Any]) -> None:
        raise NotImplementedError

    def refused(self, pair: Pair, window: Window, problem: Exception) -> None:
        """The user's code raised on the whole window: stop, or a dead letter."""
        letter = {"window": [window.start, window.end]}
        self._failures.failed(self._operator, pair[0] if self._keyed else NO_KEY, None, letter, problem)


class Accumulated(Contents):
    """One accumulator per window."""

    def __init__(self, table: Table, operator: str, keyed: bool, failures: Failures, aggregate: Aggregate[Any, Any]):
        super().__init__(table, operator, keyed, failures)
        self._aggregate = aggregate
        self._counts = type(aggregate) is Count
        self.refuses = failures.set_aside and not self._counts
        self.shares = keeps_records(aggregate)

    def _add(self, distinct: Collection[Pair], pairs: Sequence[Pair], rows: Sequence[Any], failed: Failed) -> None:
        self.table.touch(distinct)
        values = self.values
        if self._counts:
            for pair, count in Counter(pairs).items():
                values[pair] = values.get(pair, 0) + count
            return
        add, initial, get, rest = self._aggregate.add, self._aggregate.initial, values.get, iter(rows)
        feed = zip(pairs, rest, strict=True)
        while True:
            try:
                for pair, record in feed:
                    held = get(pair, _ABSENT)
                    values[pair] = add(initial() if held is _ABSENT else held, record)
                return
            except CausalError:
                raise
            except Exception as problem:
                failed(len(rows) - length_hint(rest) - 1, pair, problem)

    def opening(self, pairs: Collection[Pair]) -> None:
        self.table.touch(pairs)

    def put(self, pairs: Sequence[Pair], record: Any) -> None:
        if len(pairs) == 1:
            self.values[pairs[0]] = self._with(self.values.get(pairs[0], _ABSENT), record)
            return
        records = [own(record) if self.shares else record for _ in pairs]
        held = [self._with(self.values.get(pair, _ABSENT), each) for pair, each in zip(pairs, records, strict=True)]
        self.values.update(zip(pairs, held, strict=True))

    def put_merged(self, pairs: Sequence[Pair], record: Any) -> None:
        values = self.values
        known = [own(values[pair]) for pair in pairs if pair in values]
        self.table.touch(pairs)
        values[pairs[0]] = self._with(self._joined(known) if known else _ABSENT, record)
        for pair in pairs[1:]:
            values.pop(pair, None)

    def _with(self, held: Any, record: Any) -> Any:
        """An accumulator with one record more; the one that is held stays as it is where records may be refused."""
        if held is _ABSENT:
            held = self._aggregate.initial()
        elif self.refuses and type(held) not in SCALARS:
            held = own(held)
        return self._aggregate.add(held, record)

    def _joined(self, held: Sequence[Any]) -> Any:
        merge = self._aggregate.merge
        invariant(merge is not None, "what is merged has a function for it", operator=self._operator)
        return held[0] if merge is None else reduce(merge, held)

    def _tell(self, key: Any, held: Any, window: Window, out: list[Any]) -> None:
        result = self._aggregate.result
        value = held if result is None else result(held)
        out.append((key, value if type(value) in SCALARS else own(value), window.start, window.end))


class Listed(Contents):
    """All records of each window, for a function of them."""

    def __init__(self, table: ListTable, operator: str, keyed: bool, failures: Failures, fn: WindowFunction) -> None:
        super().__init__(table, operator, keyed, failures)
        self._lists = table
        self._fn = fn

    def _add(self, distinct: Collection[Pair], pairs: Sequence[Pair], rows: Sequence[Any], failed: Failed) -> None:
        more: defaultdict[Pair, list[Any]] = defaultdict(list)
        for pair, record in zip(pairs, rows, strict=True):
            more[pair].append(record)
        for pair, records in more.items():
            self._lists.extend(pair, records)

    def put(self, pairs: Sequence[Pair], record: Any) -> None:
        for pair in pairs:
            self._lists.append(pair, record if len(pairs) == 1 else own(record))

    def _joined(self, held: Sequence[Any]) -> Any:
        return list(chain.from_iterable(held))

    def _tell(self, key: Any, held: Any, window: Window, out: list[Any]) -> None:
        result = self._fn(key, held, window)
        if result is not None:
            check_records(result, self._operator)
            out.extend(map(own, result))


class _ByWindow(ListTable):
    """Lists by (key, slot), in the key group of the key."""

    __slots__ = ()

    def inspect(self, key: Any) -> Any:
        """[slot, records] of each window of the key, ascending."""
        return _inspected(self.values, key)


class _AccumulatorTable(Table):
    """Accumulators by (key, slot), in the key group of the key."""

    __slots__ = ()

    def inspect(self, key: Any) -> Any:
        """[slot, accumulator] of each window of the key, ascending."""
        return _inspected(self.values, key)


def _inspected(values: dict[Pair, Any], key: Any) -> Any:
    found = [[slot, value] for (other, slot), value in values.items() if other == key]
    return sorted(found, key=itemgetter(0)) or None


def pair_table(name: str, operator: str, key_groups: int) -> Table:
    """A table by (key, slot), in the key group of the key."""
    return _AccumulatorTable(name, operator, key_groups, {}, drop_empty=False, group_of=itemgetter(0))


def contents_of(
    told: Aggregate[Any, Any] | WindowFunction, operator: str, keyed: bool, key_groups: int, failures: Failures
) -> Contents:
    """What windows that were given `told` hold: an aggregate, or a function of (key, records, window)."""
    if isinstance(told, Aggregate):
        return Accumulated(pair_table(f"{operator}:panes", operator, key_groups), operator, keyed, failures, told)
    table = _ByWindow(f"{operator}:contents", operator, key_groups, group_of=itemgetter(0))
    return Listed(table, operator, keyed, failures, told)
