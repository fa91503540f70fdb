"""`aggregate_table` of a stream, and `group_by(…).aggregate` of a table: rows that grow, and shrink, with records.

Of a table old values are taken back before new ones are added; a group of which nothing is left has no row.  Where
failing records become dead letters, a record on which `add` or `result` raises has no effect: the accumulator is the
one before it.  A value that a group refuses is remembered, so that it is not taken back when it goes.
"""

from __future__ import annotations

from typing import Any

from causal.errors import CausalError, invariant
from operators.failures import Failures
from operators.ownership import SCALARS, own
from operators.stages import Stage
from operators.state import Table
from operators.tables.revisions import Revision
from operators.tables.sameness import same
from operators.windowing.aggregates import Aggregate

ABSENT: Any = object()
"""Stands where there is no accumulator."""


class Told:
    """What an aggregate makes of an accumulator: a row that shares nothing with it, and the one with a record more."""

    __slots__ = ("_aggregate", "_result", "_keeps")

    def __init__(self, aggregate: Aggregate[Any, Any], keeps: bool) -> None:
        """
        Args:
            keeps: `add` and `subtract` are given copies, so that what is held is unchanged where they raise.
        """
        self._aggregate = aggregate
        self._result = aggregate.result
        self._keeps = keeps

    def __call__(self, held: Any) -> Any:
        value = held if self._result is None else self._result(held)
        return value if type(value) in SCALARS else own(value)

    def last(self, held: Any) -> Any:
        """What was told of an accumulator before: no row, where `result` raised then as it does now."""
        try:
            return None if held is ABSENT else self(held)
        except CausalError:
            raise
        except Exception:
            if self._keeps:
                return None
            raise

    def added(self, held: Any, record: Any) -> Any:
        """The accumulator with one record more; `held` may be ABSENT."""
        return self._aggregate.add(self._aggregate.initial() if held is ABSENT else self._own(held), record)

    def less(self, held: Any, record: Any) -> Any:
        """The accumulator with one record less."""
        subtract = self._aggregate.subtract
        invariant(subtract is not None, "an aggregate of a table can subtract")
        return subtract(self._own(held), record)  # type: ignore[misc]

    def _own(self, held: Any) -> Any:
        return own(held) if self._keeps and type(held) not in SCALARS else held


class _Folding(Stage):
    """A stage with one row per key, which an aggregate makes."""

    def __init__(
        self, name: str, ordinal: int, failures: Failures, aggregate: Aggregate[Any, Any], key_groups: int
    ) -> None:
        super().__init__(name, ordinal, failures)
        self._aggregate = aggregate
        self._told = Told(aggregate, failures.set_aside)
        self._table = Table(name, name, key_groups, {}, drop_empty=False)
        self._kept: list[int] = []

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Revision]:
        keys = keys or []
        invariant(len(keys) == len(records), "a table has a key for each record", operator=self.name)
        self._table.touch(keys)
        self._kept = []
        out: list[Revision] = []
        places = iter(range(len(records)))
        index = 0
        while True:
            try:
                for index in places:
                    key = keys[index]
                    old, new = self._change(index, key, records[index])
                    if not same(old, new):
                        self._kept.append(index)
                        out.append((key, old, new))
                return out
            except CausalError:
                raise
            except Exception as problem:
                self.failed(index, records[index], problem, keys[index])

    def _change(self, index: int, key: Any, record: Any) -> tuple[Any, Any]:
        """(old, new) of the key's row; where it raises, nothing has changed."""
        raise NotImplementedError

    def source_of(self, index: int) -> int:
        return self._kept[index]

    def tables(self) -> list[Table]:
        return [self._table]


class AggregateTableStage(_Folding):
    """`aggregate_table(name, aggregate)`: a revision for each record that changes the value of its key."""

    def _change(self, index: int, key: Any, record: Any) -> tuple[Any, Any]:
        held = self._table.values.get(key, ABSENT)
        old = self._told.last(held)
        held = self._told.added(held, record)
        new = self._told(held)
        self._table.values[key] = held
        return old, new


class AggregateGroupsStage(_Folding):
    """`group_by(…).aggregate(name, aggregate)`: a group's row out of the values that are in it now.

    Kept per group: [how many values, accumulator], and behind these the values that it has refused, if there are any.
    """

    def _change(self, index: int, key: Any, record: Revision) -> tuple[Any, Any]:
        _, gone, came = record
        count, held, *more = self._table.values.get(key) or (0, ABSENT)
        refused: list[Any] = list(more[0]) if more else []
        held = held if count else ABSENT
        new = old = self._told.last(held)
        lost = gone is not None and not _taken_from(refused, gone)
        if lost:
            invariant(count > 0, "what a table takes back, it has given", operator=self.name, key=key)
            count -= 1
            held = self._less(key, held, gone) if count else ABSENT
        problem: Exception | None = None
        if came is not None:
            try:
                grown = self._told.added(held, came)
                new = self._told(grown)
                held, count, lost = grown, count + 1, False
            except CausalError:
                raise
            except Exception as raised:
                problem = raised
                refused.append(own(came))
        if lost:  # and nothing has come in its place
            try:
                new = self._told(held) if count else None
            except CausalError:
                raise
            except Exception as raised:  # the old value is gone all the same, and the group has no row
                problem, new = problem or raised, None
        self._put(key, count, held, refused)
        if problem is not None:
            self.failed(index, record, problem, key)
        return old, new

    def _less(self, key: Any, held: Any, gone: Any) -> Any:
        """The accumulator without a value that it has taken; it must be able to, or every later row were wrong."""
        try:
            return self._told.less(held, gone)
        except CausalError:
            raise
        except Exception as problem:
            self.failures.stop(self.name, {"key": key, "taken back": gone}, problem)

    def _put(self, key: Any, count: int, held: Any, refused: list[Any]) -> None:
        if count or refused:
            kept = [count, None if held is ABSENT else held]
            self._table.values[key] = [*kept, refused] if refused else kept
        else:
            self._table.values.pop(key, None)


def _taken_from(values: list[Any], value: Any) -> bool:
    """Whether the value was among them; one such is taken away."""
    for place, each in enumerate(values):
        if same(each, value):
            del values[place]
            return True
    return False
