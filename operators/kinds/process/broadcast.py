"""`broadcast(name, rules, operator)`, which processes records by rules that every task of the operator receives.

All tasks receive all rules, and receive those of one source task in the same order. All tasks therefore have the same
state, provided that rules of different source tasks do not overwrite one another.  The state is written key by key, and
each task's copy is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any

from xxhash import xxh3_128_digest

from causal.errors import CausalError
from causal.records.values import NotCarried, encode
from operators.graph import LEFT, RIGHT, Node
from operators.kinds.joins.sides import time_of_side
from operators.kinds.joins.waiting import WaitingStage
from operators.kinds.process.process_stage import ProcessStage
from operators.records.keys import canonical_key, ordered
from operators.records.ownership import SCALARS, copy_containers
from operators.records.storable import stored
from operators.stage import state_binding
from operators.stage.context import Context
from operators.stage.failures import NO_KEY, Remedied, shown
from operators.stage.kind import Kind
from operators.stage.operator import Operator
from operators.stage.scope import Scope
from operators.stage.stages import Due
from operators.stage.watermark_merge import END_NS
from operators.state.declared import NoKey
from operators.state.keyed_tables import KeyedTable
from operators.state.undo import Undo

BYTES_PER_EVENT, KEYS_PER_EVENT = 4096, 64
"""The amount of rules compared after an event: the average number of bytes, and the maximum number of values."""
_NO_KEY = NoKey("state and timers belong to a key, but process_broadcast has no key; use them in process")
_NO_STATE: Any = MappingProxyType[Any, Any]({})


class BroadcastContext(Context):
    """The context of a `BroadcastOperator`.

    Attributes:
        broadcast: the state that the rules form, in key order; only `process_broadcast` may change it or its values.
    """

    __slots__ = ("broadcast",)
    broadcast: Mapping[Any, Any]


class BroadcastOperator(Operator):
    """The base class of operators that process records by rules; define `process` and `process_broadcast`."""

    def process(self, record: Any, ctx: Any, /) -> Iterable[Any] | None:
        """See `Operator.process`; `ctx` is a `BroadcastContext`."""
        return super().process(record, ctx)

    def process_broadcast(self, record: Any, ctx: Any, /) -> Iterable[Any] | None:
        """Process a rule, in every task; this method may change `ctx.broadcast`, a dict, and may return records.

        There is no current key, so `ctx.state` and timers are not available.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no process_broadcast(self, record, ctx)")


class Rules(MutableMapping[Any, Any]):
    """The rules table as the dict that `process_broadcast` changes; values that are read may be changed in place.

    Iteration is in key order, whatever changes the table has undergone, even after a restore (D10).

    Attributes:
        grown: whether a key has been added since `settle` was last called.
    """

    def __init__(self, table: KeyedTable, undo: Undo | None) -> None:
        """
        Args:
            undo: reverts the changes made by a rule that fails; None if changes are not reverted.
        """
        self._table = table
        self._undo = undo
        self.grown = False

    def settle(self) -> None:
        """Sort the underlying table by key, because readers iterate over it directly."""
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
        """Prepare for a change of a key's value."""
        self._table.touch((key,))
        if self._undo is not None and self._undo.first((self._table.name, key)):
            values = self._table.values
            self._undo.note(partial(self._back, key, (copy_containers(values[key]),) if key in values else ()))
            self._undo.check(lambda: stored([key, values.get(key)], "ctx.broadcast, [key, value]"))

    def _back(self, key: Any, kept: tuple[Any, ...]) -> None:
        self.grown = True  # `settle` must restore the key order
        if kept:
            self._table.values[key] = kept[0]
        else:
            self._table.values.pop(key, None)

    def __setitem__(self, key: Any, value: Any) -> None:
        key = canonical_key(key)
        self._changes(key)
        self.grown = self.grown or key not in self._table.values
        self._table.values[key] = copy_containers(value)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, set to `default` if it is missing; the value may be changed in place."""
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


class ChangedRule(Remedied, TypeError):
    """Raised when a value in `ctx.broadcast` was changed in a way that only one task would see."""


class Reading(Mapping[Any, Any]):
    """The rules table as `process` reads it; it detects values that are changed in place.

    The digest of a value is computed when the value is first read, and again after events that have read it. In a small
    table, a change is detected in the same event. On average, only `BYTES_PER_EVENT` bytes of values are checked per
    event, because checking all of a large table would cost too much.
    """

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self._values = values
        self._digests: dict[Any, tuple[bytes, int]] = {}
        """The digest and encoded size of each value that has been read since the last change of the table."""
        self._due: dict[Any, None] = {}
        """The keys whose values have been read and not yet checked since."""
        self._is_complete = False
        """Whether all values have a digest."""
        self._bytes = 0

    def __getitem__(self, key: Any) -> Any:
        value = self._values[key]
        if type(value) not in SCALARS and key not in self._due:
            if key not in self._digests:
                self._digests[key] = _digest_of(value)
            self._due[key] = None
        return value

    def items(self) -> Any:
        if not self._is_complete:
            self._is_complete = True
            for key in self._values:
                self[key]
        elif not self._due:
            self._due.update(dict.fromkeys(self._digests))
        return self._values.items()

    def values(self) -> Any:
        self.items()
        return self._values.values()

    def copy(self) -> dict[Any, Any]:
        """Return a dict of the same values."""
        return dict(self.items())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self.copy())

    def changed(self) -> list[Any]:
        """Return the keys whose values are found to have changed; called at the end of an event."""
        self._bytes += BYTES_PER_EVENT
        changed = []
        for key in list(islice(self._due, KEYS_PER_EVENT)):
            known = self._digests[key]
            if known[1] > self._bytes:
                break
            del self._due[key]
            self._bytes -= known[1]
            if _digest_of(self._values[key]) != known:
                changed.append(key)
        if not self._due:
            self._bytes = 0
        return changed

    def forget(self) -> None:
        """Discard the digests, because the table was changed legitimately."""
        self._digests.clear()
        self._due.clear()
        self._is_complete = False


def _digest_of(value: Any) -> tuple[bytes, int]:
    """Return the digest and encoded size of a value; if it can no longer be encoded, use an empty encoding."""
    try:
        body = encode(value)
    except NotCarried:
        body = b""
    return xxh3_128_digest(body), len(body)


class BroadcastStage(WaitingStage, ProcessStage):
    """One task of `broadcast`; `<name>:broadcast` contains the rules, `<name>:held` the records waiting for them."""

    context = BroadcastContext
    sides = True
    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope, time_of_side(node, LEFT))
        self._wait(node, scope)
        self._rules = KeyedTable(f"{node.name}:broadcast", node.name, scope.config.key_groups)
        self.replicated = (self._rules.name,)
        self._changing = Rules(self._rules, self._undo)
        self._reading = Reading(self._rules.values)
        self._ctx.broadcast = self._reading  # type: ignore[attr-defined]

    def run_side(self, side: int, records: list[Any], keys: list[Any] | None) -> list[Any]:
        if side == RIGHT:
            return self._in_pieces(self._ruled(records))
        waiting = self._waiting
        if waiting is not None:
            self._released(*waiting.overdue())
        if waiting is None or waiting.over:
            return self._in_pieces(self.run(records, keys))
        waiting.add(keys or [None] * len(records), [END_NS] * len(records), records)
        self.count("held_back", len(records))
        return []

    def _ruled(self, records: Sequence[Any]) -> list[Any]:
        """Process rules; return their output."""
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
        self._reading.forget()
        if self._changing.grown:
            self._changing.settle()
        return out

    def _released(self, keys: list[Any], records: list[Any]) -> None:
        """Process records that no longer have to wait."""
        if records:
            self._in_pieces(self.run(records, keys if self._keyed else None))

    def _in_pieces(self, output: list[Any]) -> list[Any]:
        """Return the output, or keep it for `pieces` if the stage generates watermarks."""
        if not self.makes_marks:
            return output
        self._ready.append((output, None))
        return []

    # Events.

    def end(self) -> None:
        super().end()
        for key in self._reading.changed():
            text = f"process changed ctx.broadcast[{shown(key)}] in place"
            problem = ChangedRule(text, "change a copy, or change it in process_broadcast, and resume with --code new")
            self.failures.stop(self.name, None, problem)

    def ended(self, input: int) -> None:
        if self._waiting is not None:
            self._released(*self._waiting.ended(input))

    def fire(self, entries: Sequence[Due]) -> list[Any]:
        return self._in_pieces(super().fire(entries))

    def advance(self, mark_ns: int) -> list[Any]:
        if self._waiting is not None:
            self._released(*self._waiting.passed(mark_ns))
        return self._in_pieces(super().advance(mark_ns))

    def passes(self, mark_ns: int) -> int | None:
        """Pass no watermark on while records are waiting, because they may have any time."""
        if self._waiting is not None and not self._waiting.over and mark_ns != END_NS:
            return None
        return mark_ns

    def finish(self) -> list[Any]:
        return self._in_pieces(super().finish())

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        waiting = [] if self._waiting is None else [self._waiting.entries]
        return [*super().tables(), self._rules, *waiting]

    def restored(self) -> None:
        super().restored()
        self._changing.settle()
        self._reading.forget()


KINDS = {"broadcast": Kind(BroadcastStage, keyed="allowed", begins=True, check=state_binding.check_node, asides=None)}
