"""`aggregate_table` of a stream and `group_by(…).aggregate` of a table, whose rows are changed by records.

In a table, old values are retracted before new ones are added; an empty group has no row.  If failing records become
dead letters, a record for which `add` or `result` raises has no effect: the previous accumulator is kept.  A value that
a group refuses is remembered, so that it is not retracted later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from causal.errors import CausalError, invariant
from operators.graph import Node
from operators.kinds.tables.attempts import value_or_none
from operators.kinds.tables.revisions import Revision
from operators.kinds.tables.sameness import same
from operators.kinds.tables.unsettled import RowStage
from operators.kinds.windows.aggregates import Aggregate
from operators.records.ownership import SCALARS, always_fits, copy_containers
from operators.records.storable import stored
from operators.stage.scope import Scope
from operators.stage.stages import SelectingStage
from operators.state.keyed_tables import KeyedTable

ABSENT: Any = object()
"""A marker for a missing accumulator."""


class AggregateRow:
    """Calls an aggregate's functions; the rows that it returns share no mutable objects with accumulators."""

    __slots__ = ("_aggregate", "_result", "_keeps", "_own")

    def __init__(self, aggregate: Aggregate[Any, Any], keeps: bool, own: Callable[[Any, Any], Any]) -> None:
        """
        Args:
            keeps: whether to pass copies to `add` and `subtract`, so that an accumulator stays unchanged if they raise
                or return a value that cannot be kept as state.
            own: `Stage.own_row`, which refuses a row that cannot be carried, as if `result` had raised.
        """
        self._aggregate = aggregate
        self._result = aggregate.result
        self._keeps = keeps
        self._own = own

    def __call__(self, key: Any, accumulator: Any) -> Any:
        """Return the row for an accumulator; raise if `result` raises or the row cannot be carried."""
        value = accumulator if self._result is None else self._result(accumulator)
        free = always_fits(value) if self._keeps else type(value) in SCALARS
        return value if free else self._own(key, value)

    def sent(self, accumulator: Any) -> Any:
        """Return the row that was sent for an accumulator, without checking whether it can be carried."""
        if accumulator is ABSENT:
            return None
        try:
            value = accumulator if self._result is None else self._result(accumulator)
        except CausalError:
            raise
        except Exception:
            if self._keeps:
                return None
            raise
        return value if type(value) in SCALARS else copy_containers(value)

    def sent_of_group(self, key: Any, accumulator: Any) -> Any:
        """Return the row that was sent for a group, or None if it is refused now as it was when it was computed."""
        try:
            return None if accumulator is ABSENT else self(key, accumulator)
        except CausalError:
            raise
        except Exception:
            if self._keeps:
                return None
            raise

    def added(self, accumulator: Any, record: Any) -> Any:
        """Return the accumulator with one record added; `accumulator` may be ABSENT."""
        return self._fitting(
            self._aggregate.add(
                self._aggregate.initial() if accumulator is ABSENT else self._copied(accumulator), record
            )
        )

    def merged(self, one: Any, other: Any) -> Any:
        """Return the accumulator of two; neither changes if they are kept."""
        merge = self._aggregate.merge
        invariant(merge is not None, "an aggregate of sessions can merge")
        return self._fitting(merge(self._copied(one), self._copied(other)))  # type: ignore[misc]

    def less(self, accumulator: Any, record: Any) -> Any:
        """Return the accumulator with one record subtracted."""
        subtract = self._aggregate.subtract
        invariant(subtract is not None, "an aggregate of a table can subtract")
        return self._fitting(subtract(self._copied(accumulator), record))  # type: ignore[misc]

    def _copied(self, accumulator: Any) -> Any:
        return copy_containers(accumulator) if self._keeps and type(accumulator) not in SCALARS else accumulator

    def _fitting(self, accumulator: Any) -> Any:
        return stored(accumulator, "its accumulator") if self._keeps and not always_fits(accumulator) else accumulator


class _Folding(SelectingStage, RowStage, ABC):
    """A stage with one row per key: the result of an aggregate."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._row = AggregateRow(node.subject, scope.failures.set_aside, self.own_row)
        self._table = KeyedTable(node.name, node.name, scope.config.key_groups)
        self._begin_settled(node, scope)

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Revision]:
        keys = keys or []
        invariant(len(keys) == len(records), "a table has a key for each record", operator=self.name)
        self._table.touch(keys)
        self._kept = places = list[int]()
        out, unsettled = list[Revision](), self.unsettled.values
        for index, (key, record) in enumerate(zip(keys, records, strict=True)):
            try:
                changed = self._change(index, key, record)
            except CausalError:
                raise
            except Exception as problem:
                self.failed(index, record, problem, key)
                continue
            if changed is None:
                continue
            old, new = changed
            if unsettled:
                old = self._sent(key, old)
            if not same(old, new):
                places.append(index)
                out.append(self._revision(key, old, new) if unsettled else (key, old, new))
        return out

    @abstractmethod
    def _change(self, index: int, key: Any, record: Any) -> tuple[Any, Any] | None:
        """Change a key's row; return (old, new), or None for no revision. If this raises, nothing has changed."""

    def tables(self) -> list[KeyedTable]:
        return [self._table, self.unsettled]


class AggregateTableStage(_Folding):
    """`aggregate_table(name, aggregate)`, which emits a revision for each record that changes the row of its key."""

    def _change(self, index: int, key: Any, record: Any) -> tuple[Any, Any]:
        accumulator = self._table.values.get(key, ABSENT)
        old = self._row.sent(accumulator)
        accumulator = self._row.added(accumulator, record)
        new = self._row(key, accumulator)
        self._table.values[key] = accumulator
        return old, new

    def rows(self) -> Iterable[tuple[Any, Any]]:
        return ((key, value_or_none(self._row.sent, accumulator)) for key, accumulator in self._table.values.items())


class AggregateGroupsStage(_Folding):
    """`group_by(…).aggregate(name, aggregate)`, in which the row of a group is the aggregate of its current values.

    State per group: [number of values, accumulator], followed by a list of the values that the group refused, if any.
    """

    def rows(self) -> Iterable[tuple[Any, Any]]:
        return (
            (key, value_or_none(self._row, key, accumulator) if count else None)
            for key, (count, accumulator, *_) in self._table.values.items()
        )

    def _change(self, index: int, key: Any, record: Revision) -> tuple[Any, Any] | None:
        _, gone, came, *only = record
        if only and self.name not in only[0]:
            return None
        count, accumulator, *more = self._table.values.get(key) or (0, ABSENT)
        refused: list[Any] = list(more[0]) if more else []
        accumulator = accumulator if count else ABSENT
        new = old = self._row.sent_of_group(key, accumulator)
        lost = gone is not None and not _taken_from(refused, gone)
        if lost:
            invariant(count > 0, "a table retracts only values that it has sent", operator=self.name, key=key)
            count -= 1
            accumulator = self._less(key, accumulator, gone) if count else ABSENT
        problem: Exception | None = None
        if came is not None:
            try:
                grown = self._row.added(accumulator, came)
                new = self._row(key, grown)
                accumulator, count, lost = grown, count + 1, False
            except CausalError:
                raise
            except Exception as raised:
                problem = raised
                refused.append(copy_containers(came))
        if lost:  # a value was removed, and no other value replaces it
            try:
                new = self._row(key, accumulator) if count else None
            except CausalError:
                raise
            except Exception as raised:  # the old value is still removed, and the group then has no row
                problem, new = problem or raised, None
        self._put(key, count, accumulator, refused)
        if problem is not None:
            self.failed(index, record, problem, key)
        return old, new

    def _less(self, key: Any, accumulator: Any, gone: Any) -> Any:
        """Subtract a value; if that raises, stop the job, because every later row of the group would be wrong."""
        try:
            return self._row.less(accumulator, gone)
        except CausalError:
            raise
        except Exception as problem:
            self.failures.stop(self.name, {"key": key, "taken back": gone}, problem)

    def _put(self, key: Any, count: int, accumulator: Any, refused: list[Any]) -> None:
        if count or refused:
            kept = [count, None if accumulator is ABSENT else accumulator]
            self._table.values[key] = [*kept, refused] if refused else kept
        else:
            self._table.values.pop(key, None)


def _taken_from(values: list[Any], value: Any) -> bool:
    """Remove one occurrence of the value; return whether the list contained it."""
    for place, each in enumerate(values):
        if same(each, value):
            del values[place]
            return True
    return False
