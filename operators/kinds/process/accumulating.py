"""`count` and `reduce`: one value per key, emitted after each record."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import repeat
from typing import Any

from causal.errors import CausalError
from causal.records.rows import Rows
from causal.records.values import decode, encode
from operators.graph import Node
from operators.records.ownership import SCALARS, always_fits, copy_containers
from operators.records.storable import stored
from operators.stage.scope import Scope
from operators.stage.stages import OneToOneStage, Stage, last_index, without
from operators.state.keyed_tables import ABSENT, NUMERIC, CopiedJob, KeyedTable, TableJob

COPIED_MAX = 1 << 14
"""The maximum number of numbers that are copied at a barrier, which takes about a millisecond."""
_MOST = 0.5
"""The fraction of changed keys beyond which all keys count as changed, because recording each would cost more."""


class AccumulatorTable(KeyedTable):
    """A table from which no key is removed; once most keys have changed, the next snapshot contains all keys."""

    __slots__ = ("_most",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._most = False

    def touch(self, keys: Collection[Any]) -> None:
        if self._most or (self.numeric and len(keys) >= len(self.values)):  # encoding all is as cheap as counting
            self._most = True
            if self._job is not None:
                self._job.before(keys)
        else:
            super().touch(keys)
            self._most = len(self.dirty) > len(self.values) * _MOST

    def snapshot(self, full: bool) -> TableJob:
        """Freeze the values; a few numbers are copied, because each of their next changes then costs nothing."""
        whole, self._most = full or self._most, False
        keys = self.values if whole else self.dirty
        if self.numeric and self.cold is None and len(keys) <= COPIED_MAX:
            values = list(self.values.values() if whole else map(self.values.get, keys, repeat(ABSENT)))
            kinds = set(map(type, values))
            if kinds <= NUMERIC:
                self.dirty = set()
                return CopiedJob(self, list(keys), values, type(ABSENT) in kinds, full)
        if whole:
            self.dirty = set(self.values)
        return super().snapshot(full)

    def clear(self) -> None:
        super().clear()
        self._most = False


class CountStage(Stage):
    """`count(name)`, which emits `(key, n)` for each record, where n is the number of records of the key so far."""

    takes_rows = True

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._table = AccumulatorTable(node.name, node.name, scope.config.key_groups)

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

    def tables(self) -> list[KeyedTable]:
        return [self._table]


NO_INITIAL: Any = object()


def _keeping(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function that applies `fn` to a copy of the accumulated value, so that a failed call changes nothing."""
    return lambda total, record: fn(total if type(total) in SCALARS else copy_containers(total), record)


class ReduceStage(OneToOneStage):
    """`reduce(name, fn, initial)`, which emits `(key, accumulated)` for each record.

    The state of a key begins as a copy of `initial`, or as `initial()` if it is callable. Without `initial`, the first
    record of a key is its first state, and is emitted unchanged.
    """

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        fn, initial = node.subject, node.options["initial"]
        self._fn: Callable[[Any, Any], Any] = _keeping(fn) if scope.failures.set_aside else fn
        self._table = AccumulatorTable(node.name, node.name, scope.config.key_groups)
        self._begin_with: Callable[[Any], Any]
        if initial is NO_INITIAL:
            self._begin_with = copy_containers
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
        append, set_aside = totals.append, self.failures.set_aside
        rows = iter(records)
        for key, record in zip(keys, rows, strict=True):
            try:
                total = fn(state[key], record) if key in state else begin_with(record)
                if set_aside and not always_fits(total):
                    stored(total, "the value")
                    if self.leaves:
                        self.failures.carried((key, total))
                state[key] = total
                append(total if type(total) in SCALARS else copy_containers(total))
            except CausalError:
                raise
            except Exception as problem:
                index = last_index(records, rows)
                lost.append(index)
                self.failed(index, record, problem, key)
        self._lost = lost
        return Rows([without(keys, lost) if lost else keys, totals])

    def tables(self) -> list[KeyedTable]:
        return [self._table]
