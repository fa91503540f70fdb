"""Revisions `(key, old, new)`: plain tuples, None for no row, `old` what was last sent for the key.

A value is sent once: where it is the same as the one before it (`sameness.same`), there is no revision.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from causal.errors import CausalError, invariant
from operators.graph import Node
from operators.kinds.tables.sameness import same
from operators.records.keys import canonical_key
from operators.records.ownership import SCALARS, copy_containers
from operators.records.seconds import ns_of_seconds
from operators.stage.failures import NO_KEY
from operators.stage.scope import Scope
from operators.stage.stages import SelectingStage, Stage
from operators.state.keyed_tables import KeyedTable

Revision = tuple[Any, Any, Any]
"""(key, old, new)"""

KEY_OF: Callable[[Any], Any] = itemgetter(0)
"""The key of a revision: one object, so that all edges of a table have the same key function."""

Derive = Callable[[Any, Any], Any]
"""(key, value) -> another value, or None for no row."""


def end_of_window(revision: Revision) -> float:
    """Returns the event time of a revision of a table by (key, start, end): the end of its window less 1 µs, in s."""
    return float(revision[0][2]) - 1e-6


def end_ns(key: tuple[Any, Any, Any]) -> int:
    """Returns the end of the window in a key (key, start, end)."""
    return ns_of_seconds(key[2])


class LatestStage(SelectingStage):
    """`table(name)`: the latest record of each key is its row; a record None deletes it."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._table = KeyedTable(node.name, node.name, scope.config.key_groups)

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Revision]:
        keys = keys or []
        invariant(len(keys) == len(records), "a table has a key for each record", operator=self.name)
        self._table.touch(keys)
        rows, out, places = self._table.values, list[Revision](), list[int]()
        self._kept = places
        for index, (key, record) in enumerate(zip(keys, records, strict=True)):
            old = rows.get(key)
            if same(old, record):
                continue
            if record is None:
                del rows[key]
            else:
                rows[key] = record
            places.append(index)
            out.append((key, copy_containers(old), record if type(record) in SCALARS else copy_containers(record)))
        return out

    def tables(self) -> list[KeyedTable]:
        return [self._table]


class _ValueStage(Stage):
    """Base of stages that call a function on the values of revisions.

    A value on which it raises gives nothing; it is one dead letter when it is added, none when it is retracted.
    """

    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._fn: Derive = kept(node.subject) if node.kind == "table_filter" else node.subject

    def _result(self, key: Any, value: Any, index: int | None, convert: Callable[[Any], Any]) -> Any:
        """Returns what `convert` makes of the function's result; None for no value, and where one of them raises.

        Args:
            index: of the revision that adds the value; None where it is retracted.
        """
        if value is None:
            return None
        try:
            return convert(self._fn(key, value))
        except CausalError:
            raise
        except Exception as problem:
            if index is not None:
                self.failed(index, value, problem, key)
            return None


class DeriveStage(_ValueStage):
    """`filter` and `map_values` of a table: another value, or no row, for each value."""

    def run(self, records: list[Revision], keys: list[Any] | None) -> list[Revision]:
        out: list[Revision] = []
        for index, (key, old, new) in enumerate(records):
            before = self._result(key, old, None, copy_containers)
            after = self._result(key, new, index, copy_containers)
            if not same(before, after):
                out.append((key, before, after))
        return out


class GroupStage(_ValueStage):
    """`group_by(name, fn)`: each revision under the key that `fn(key, value)` returns.

    Where old and new are of two groups, one group loses the old value and the other gets the new one.
    """

    def run(self, records: list[Revision], keys: list[Any] | None) -> list[Revision]:
        out: list[Revision] = []
        for index, (key, old, new) in enumerate(records):
            before, after = self._result(key, old, None, _group), self._result(key, new, index, _group)
            if before and after and before == after:
                out.append((before[0], old, new))
                continue
            if before:
                out.append((before[0], old, None))
            if after:
                out.append((after[0], None, new))
        return out


class ToStreamStage(_ValueStage):
    """`to_stream(name, fn)`: `fn(key, value)` of each new value, which is None where the row was deleted."""

    def run(self, records: list[Revision], keys: list[Any] | None) -> list[Any]:
        fn, out = self._fn, list[Any]()
        for index, (key, _, new) in enumerate(records):
            try:
                out.append(fn(key, new))
            except CausalError:
                raise
            except Exception as problem:
                self.failed(index, [key, new], problem, NO_KEY)
        return out


def _group(group: Any) -> tuple[Any]:
    """Returns a group in a tuple, since it may be None."""
    return (canonical_key(group),)


def kept(fn: Callable[[Any, Any], Any]) -> Derive:
    """Returns the derivation of a filter: the value where `fn(key, value)` is true."""
    return lambda key, value: value if fn(key, value) else None
