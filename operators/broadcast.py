"""`broadcast(name, rules, operator)`: records, and rules that every task of the operator is told.

All tasks are given all rules; those of one source task in one order, so that tasks hold the same where rules of several
sources do not overwrite one another.  What is held is state: written key by key, the same copy in every task.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from causal.errors import CausalError
from operators import binding
from operators.context import Context
from operators.declared import NoKey
from operators.eventtime.merge import END_NS
from operators.failures import NO_KEY
from operators.graph import Node
from operators.joins.sides import LEFT, RIGHT, inputs_of_side, time_of_side
from operators.joins.waiting import Waiting
from operators.keys import canonical_key, ordered
from operators.operator import Operator
from operators.ownership import own
from operators.processing import ProcessStage
from operators.scope import Kind, Scope
from operators.stages import Due, Stage
from operators.state import FragmentJob, Table
from operators.undo import Undo

_NO_KEY = NoKey("state and timers belong to a key, and process_broadcast has none; use them in process")
_NO_STATE: Any = MappingProxyType[Any, Any]({})


class BroadcastContext(Context):
    """What a `BroadcastOperator` is given.

    Attributes:
        broadcast: what rules have put there, iterated over in key order; changed in `process_broadcast` only, its
            values too.
    """

    __slots__ = ("broadcast",)
    broadcast: Mapping[Any, Any]


class BroadcastOperator(Operator):
    """Base of operators that work on records by rules; `process` and `process_broadcast` must be written."""

    def process_broadcast(self, record: Any, ctx: Any) -> Iterable[Any] | None:
        """Called in every task for each rule; may change `ctx.broadcast`, a dict, and give records.

        There is no current key, so neither `ctx.state` nor timers.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no process_broadcast(self, record, ctx)")


class Rules(MutableMapping[Any, Any]):
    """A table as the dict that `process_broadcast` changes; a value that is read may be changed in place.

    Keys are iterated over in key order, which neither history nor a restore changes (D10).

    Attributes:
        grown: whether a key was added since `settle`.
    """

    def __init__(self, table: Table, undo: Undo | None) -> None:
        """
        Args:
            undo: what takes back changes of a rule that fails; None where nothing is taken back.
        """
        self._table = table
        self._undo = undo
        self.grown = False

    def settle(self) -> None:
        """Bring the table itself into key order, for those that only read it."""
        self.grown = False
        values = self._table.values
        settled = {key: values[key] for key in ordered(values)}
        values.clear()
        values.update(settled)

    def __getitem__(self, key: Any) -> Any:
        value = self._table.values[key]
        self._changes(canonical_key(key))
        return value

    def _changes(self, key: Any) -> None:
        """The value of a key is about to change."""
        self._table.touch((key,))
        if self._undo is not None and self._undo.first((self._table.name, key)):
            held = self._table.values
            self._undo.note(partial(self._back, key, (own(held[key]),) if key in held else ()))

    def _back(self, key: Any, kept: tuple[Any, ...]) -> None:
        self.grown = True  # the order is not what it was
        if kept:
            self._table.values[key] = kept[0]
        else:
            self._table.values.pop(key, None)

    def __setitem__(self, key: Any, value: Any) -> None:
        key = canonical_key(key)
        self._changes(key)
        self.grown = self.grown or key not in self._table.values
        self._table.values[key] = own(value)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of a key, `default` from now on if there is none: as it is kept, to be changed in place."""
        if key not in self._table.values:
            self[key] = default
        return self[key]

    def __delitem__(self, key: Any) -> None:
        if key not in self._table.values:
            raise KeyError(key)
        self._changes(canonical_key(key))
        del self._table.values[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(ordered(self._table.values))

    def __len__(self) -> int:
        return len(self._table.values)


class BroadcastStage(ProcessStage):
    """One task of `broadcast`; `<name>:broadcast` holds the rules, `<name>:held` the records that wait for them."""

    context = BroadcastContext
    sides = True
    traces = False

    def __init__(self, node: Node, scope: Scope, waiting: Waiting | None) -> None:
        """
        Args:
            waiting: what holds records back until the rules have ended; None where none waits.
        """
        super().__init__(
            node.name,
            scope.ordinal,
            scope.failures,
            copy.copy(node.subject),
            scope.task,
            node.keyed,
            scope.config.key_groups,
            scope.numbers,
            time_of_side(node, LEFT),
            scope.tags,
        )
        self.makes_marks = waiting is not None
        self._waiting = waiting
        self._rules = Table(f"{node.name}:broadcast", node.name, scope.config.key_groups, {}, drop_empty=False)
        self.replicated = (self._rules.name,)
        self._changing = Rules(self._rules, self._undo)
        self._reading: Mapping[Any, Any] = MappingProxyType(self._rules.values)
        self._ready: list[tuple[Any, int | None]] = []
        self._ctx.broadcast = self._reading  # type: ignore[attr-defined]

    def run_side(self, side: int, records: list[Any], keys: list[Any] | None) -> list[Any]:
        if side == RIGHT:
            return self._given(self._ruled(records))
        waiting = self._waiting
        if waiting is None or waiting.over:
            return self._given(self.run(records, keys))
        for key, record in zip(keys or [None] * len(records), records, strict=True):
            waiting.add(key, END_NS, record)
        self.count("held_back", len(records))
        return []

    def _ruled(self, records: Sequence[Any]) -> list[Any]:
        """What the operator makes of rules."""
        ctx: Any = self._ctx
        operator: Any = self._operator
        out: list[Any] = []
        ctx.key, ctx.state, ctx.broadcast = _NO_KEY, _NO_STATE, self._changing
        undo = self._undo
        for index, record in enumerate(records):
            if undo is not None:
                undo.begin({}, out)
            try:
                self._emit(operator.process_broadcast(record, ctx), out)
                if undo is not None:
                    undo.end()
            except CausalError:
                raise
            except Exception as problem:
                if undo is not None:
                    undo.undo()
                self.failed(index, record, problem, NO_KEY)
        ctx.key, ctx.broadcast = None, self._reading
        if self._changing.grown:
            self._changing.settle()
        return out

    def _released(self, keys: list[Any], records: list[Any]) -> None:
        """Records that wait no more."""
        if records:
            self._given(self.run(records, keys if self._keyed else None))

    def _given(self, made: list[Any]) -> list[Any]:
        """A stage that makes marks gives its records in pieces."""
        if not self.makes_marks:
            return made
        self._ready.append((made, None))
        return []

    def pieces(self) -> list[tuple[Any, int | None]]:
        ready, self._ready = self._ready, []
        return ready

    # Events.

    def ended(self, input: int) -> None:
        if self._waiting is not None:
            self._released(*self._waiting.ended(input))

    def fire(self, entries: Sequence[Due]) -> list[Any]:
        return self._given(super().fire(entries))

    def advance(self, mark_ns: int) -> list[Any]:
        if self._waiting is not None:
            self._released(*self._waiting.passed(mark_ns))
        return self._given(super().advance(mark_ns))

    def passes(self, mark_ns: int) -> int | None:
        """Nothing, while records of any time wait."""
        if self._waiting is not None and not self._waiting.over and mark_ns != END_NS:
            return None
        return mark_ns

    def finish(self) -> list[Any]:
        return self._given(super().finish())

    # Snapshots.

    def tables(self) -> list[Table]:
        held = [] if self._waiting is None else [self._waiting.slots.table]
        return [*super().tables(), self._rules, *held]

    def freeze(self, full: bool) -> tuple[dict[str, Any], list[FragmentJob]]:
        header, jobs = super().freeze(full)
        if self._waiting is not None:
            header["waiting"] = self._waiting.header()
        return header, jobs

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        if self._waiting is not None and "waiting" in header:
            self._waiting.load(header["waiting"])

    def restored(self) -> None:
        super().restored()
        self._changing.settle()

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        told = [header["waiting"] for header in headers if "waiting" in header]
        others = [{name: value for name, value in header.items() if name != "waiting"} for header in headers]
        return {**super().merge_headers(others), **({"waiting": Waiting.merged(told)} if told else {})}


def _stage(node: Node, scope: Scope) -> Stage:
    waiting = None
    if node.options["wait"]:
        awaited = inputs_of_side(node, RIGHT, scope.task, scope.inputs)
        waiting = Waiting(f"{node.name}:held", node.name, scope.config.key_groups, awaited, scope.numbers)
    return BroadcastStage(node, scope, waiting)


KINDS = {"broadcast": Kind(_stage, keyed="allowed", begins=True, check=binding.check_node, asides=None)}
