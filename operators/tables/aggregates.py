"""`aggregate_table` of a stream, and `group_by(…).aggregate` of a table: rows that grow, and shrink, with records.

Of a table old values are taken back before new ones are added; a group of which nothing is left has no row.
"""

from __future__ import annotations

from typing import Any

from causal.errors import CausalError, invariant
from operators.failures import Failures
from operators.ownership import SCALARS, own
from operators.stages import Stage
from operators.state import Table
from operators.tables.revisions import Revision
from operators.windowing.aggregates import Aggregate

_ABSENT: Any = object()


class Told:
    """What is told of an accumulator: a value that shares nothing with it."""

    __slots__ = ("_result",)

    def __init__(self, aggregate: Aggregate[Any, Any]) -> None:
        self._result = aggregate.result

    def __call__(self, held: Any) -> Any:
        value = held if self._result is None else self._result(held)
        return value if type(value) in SCALARS else own(value)


class _Folding(Stage):
    """A stage with one row per key, which an aggregate makes."""

    def __init__(
        self, name: str, ordinal: int, failures: Failures, aggregate: Aggregate[Any, Any], key_groups: int
    ) -> None:
        super().__init__(name, ordinal, failures)
        self._aggregate = aggregate
        self._told = Told(aggregate)
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
                    old, new = self._change(key, records[index])
                    if old != new:
                        self._kept.append(index)
                        out.append((key, old, new))
                return out
            except CausalError:
                raise
            except Exception as problem:
                self.failed(index, records[index], problem, keys[index])

    def _change(self, key: Any, record: Any) -> tuple[Any, Any]:
        """(old, new) of the key's row."""
        raise NotImplementedError

    def source_of(self, index: int) -> int:
        return self._kept[index]

    def tables(self) -> list[Table]:
        return [self._table]


class AggregateTableStage(_Folding):
    """`aggregate_table(name, aggregate)`: a revision for each record that changes the value of its key."""

    def _change(self, key: Any, record: Any) -> tuple[Any, Any]:
        held = self._table.values.get(key, _ABSENT)
        old = None if held is _ABSENT else self._told(held)
        held = self._aggregate.add(self._aggregate.initial() if held is _ABSENT else held, record)
        self._table.values[key] = held
        return old, self._told(held)


class AggregateGroupsStage(_Folding):
    """`group_by(…).aggregate(name, aggregate)`: a group's row out of the values that are in it now.

    Kept per group: [how many values, accumulator].
    """

    def _change(self, key: Any, record: Revision) -> tuple[Any, Any]:
        _, gone, came = record
        count, held = self._table.values.get(key) or (0, self._aggregate.initial())
        old = self._told(held) if count else None
        if gone is not None:
            invariant(count > 0, "what a table takes back, it has given", operator=self.name, key=key)
            subtract = self._aggregate.subtract
            invariant(subtract is not None, "an aggregate of a table can subtract", operator=self.name)
            held = subtract(held, gone)  # type: ignore[misc]
            count -= 1
        if came is not None:
            held = self._aggregate.add(held, came)
            count += 1
        if count == 0:
            self._table.values.pop(key, None)
            return old, None
        self._table.values[key] = [count, held]
        return old, self._told(held)
