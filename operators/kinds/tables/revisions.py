"""Revisions `(key, old, new)`: plain tuples in which None means no row, and `old` is the value last sent for the key.

A value is sent once: if it is the same as the previous one (`sameness.same`), no revision is sent.  The revision of an
unsettled row has a fourth item; see `operators.kinds.tables.unsettled`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from causal.errors import CausalError
from operators.graph import Node
from operators.kinds.tables.sameness import same
from operators.records.keys import canonical_key
from operators.records.seconds import ns_of_seconds
from operators.stage.failures import NO_KEY
from operators.stage.scope import Scope
from operators.stage.stages import SelectingStage, Stage

Revision = tuple[Any, ...]
"""(key, old, new), or (key, old, new, sent) for an unsettled row"""
PLAIN = 3
"""The number of items in a revision of a settled row."""

KEY_OF: Callable[[Any], Any] = itemgetter(0)
"""The function that returns the key of a revision; all edges of a table share this one object."""

Derive = Callable[[Any, Any], Any]
"""A function (key, value) -> new value, or None for no row."""


def end_of_window(revision: Revision) -> float:
    """Return the event time of a revision with key (key, start, end): the end of its window minus 1 µs, in s."""
    return float(revision[0][2]) - 1e-6


def end_ns(key: tuple[Any, Any, Any]) -> int:
    """Return the end of the window named by a key (key, start, end)."""
    return ns_of_seconds(key[2])


class _ValueStage(Stage):
    """The base class of stages that call a function on the values of revisions.

    A value for which the function raises has no result. It causes a dead letter when it is added, but not when it is
    retracted.
    """

    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._fn: Derive = derivation(node)

    def _result(self, key: Any, value: Any, index: int | None, convert: Derive) -> Any:
        """Return `convert` of the function's result, or None if there is no value or either function raises.

        Args:
            index: the index of the revision that adds the value; None if the value is retracted.
        """
        if value is None:
            return None
        try:
            return convert(key, self._fn(key, value))
        except CausalError:
            raise
        except Exception as problem:
            if index is not None:
                self.failed(index, value, problem, key)
            return None


class DeriveStage(_ValueStage):
    """One task of a table's `filter` or `map_values`, which converts each value to a new value or to no row."""

    def run(self, records: list[Revision], keys: list[Any] | None) -> list[Revision]:
        out: list[Revision] = []
        for index, revision in enumerate(records):
            key, old, new, *sent = revision
            before = self._result(key, old, None, self.own_row)
            after = self._result(key, new, index, self.own_row)
            if sent or not same(before, after):
                out.append((key, before, after, *sent))
        return out


class GroupStage(_ValueStage):
    """`group_by(name, fn)`, which sends each revision under the key that `fn(key, value)` returns.

    If the old and new values are in different groups, one group loses the old value and the other receives the new one.
    A revision `(group, old, None, names)` applies only to the aggregates with those names.
    """

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._readers: Sequence[str] = node.options["readers"]

    def run(self, records: list[Revision], keys: list[Any] | None) -> list[Revision]:
        out: list[Revision] = []
        for index, revision in enumerate(records):
            key, old, new, *sent = revision
            before, after = self._result(key, old, None, _group), self._result(key, new, index, _group)
            if sent:
                self._settle(before and [before[0], old], after, new, sent[0], out)
            else:
                _regroup(before, old, after, new, out)
        return out

    def _settle(
        self, derived: Any, after: tuple[Any] | None, new: Any, sent: dict[str, Any], out: list[Revision]
    ) -> None:
        """Retract an unsettled row from each aggregate: the value that it received is [group, value], or None."""
        known = [sent.get(name, derived) for name in self._readers]
        if known and all(same(known[0], each) for each in known):
            group, old = known[0] or (None, None)
            if not (known[0] and after and after == (group,) and same(old, new)):
                _regroup((group,) if known[0] else None, old, after, new, out)
            return
        for name, each in zip(self._readers, known, strict=True):
            if each:
                out.append((each[0], each[1], None, [name]))
        if after:
            out.append((after[0], None, new))


class RevisionsStage(SelectingStage):
    """`revisions(name)`, which emits revisions as records."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)

    def run(self, records: list[Revision], keys: list[Any] | None) -> list[Revision]:
        if max(map(len, records)) == PLAIN:
            self._kept = range(len(records))
            return records
        out, places = list[Revision](), list[int]()
        self._kept = places
        for index, (key, old, new, *sent) in enumerate(records):
            before = sent[0].get(self.name, old) if sent else old
            if not same(before, new):
                places.append(index)
                out.append((key, before, new))
        return out


class ToStreamStage(_ValueStage):
    """`to_stream(name, fn)`, which emits `fn(key, value)` for each new value; the value is None for a deleted row."""

    def run(self, records: list[Revision], keys: list[Any] | None) -> list[Any]:
        fn, out = self._fn, list[Any]()
        for index, (key, old, new, *sent) in enumerate(records):
            if sent and same(sent[0].get(self.name, old), new):
                continue
            try:
                out.append(fn(key, new))
            except CausalError:
                raise
            except Exception as problem:
                self.failed(index, [key, new], problem, NO_KEY)
        return out


def _regroup(before: tuple[Any] | None, old: Any, after: tuple[Any] | None, new: Any, out: list[Revision]) -> None:
    """Append the revisions for a value whose group may have changed, or which may no longer be in a group."""
    if before and after and before == after:
        out.append((before[0], old, new))
        return
    if before:
        out.append((before[0], old, None))
    if after:
        out.append((after[0], None, new))


def _group(_: Any, group: Any) -> tuple[Any]:
    """Return a group in a tuple, because the group itself may be None."""
    return (canonical_key(group),)


def kept(fn: Callable[[Any, Any], Any]) -> Derive:
    """Return the derivation of a filter: it returns the value if `fn(key, value)` is true, and None otherwise."""
    return lambda key, value: value if fn(key, value) else None


def derivation(node: Node) -> Derive:
    """Return the derivation of a `filter` or `map_values`; for any other operator, return its function."""
    return kept(node.subject) if node.kind == "table_filter" else node.subject
