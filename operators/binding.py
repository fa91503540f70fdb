"""All declared states of one operator in one task: found, bound, written, restored, grown old."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from causal.errors import PipelineError
from operators.declared import Clock, State
from operators.graph import Node, check_event_time
from operators.joins.sides import LEFT
from operators.keyed.cold_values import Disk
from operators.keyed.ttl import merged as merged_ages
from operators.operator import Operator
from operators.state import Table
from operators.undo import Undo

RESERVED = frozenset(("timers", "event-timers", "held", "since", "asked", "state", "broadcast"))
"""Parts of an operator's state that the runtime names."""


def declared(operator: Operator) -> dict[str, State]:
    """The states that the operator's class, or its instance, declares, in the order of declaration."""
    found: dict[str, Any] = {}
    for scope in [*reversed(type(operator).__mro__), operator]:
        found.update(vars(scope))
    return {name: value for name, value in found.items() if isinstance(value, State)}


def check(operator: Operator, name: str) -> None:
    """Find what can be known to be wrong with the states that the operator named `name` declares.

    Raises:
        PipelineError: the first thing that is.
    """
    states = declared(operator)
    if states and getattr(operator, "process_batch", None) is not None:
        raise PipelineError(
            f"operator {name!r} declares state {next(iter(states))!r}, which belongs to one key, and defines "
            "process_batch, which has many; define process, or keep to ctx.states(keys)"
        )
    for attribute, state in states.items():
        if attribute in RESERVED:
            raise PipelineError(f"operator {name!r} declares a state named {attribute!r}, which is taken; rename it")
        try:
            state.codec()
        except TypeError as problem:
            raise PipelineError(
                f"state {attribute!r} of operator {name!r} is declared with a type that cannot be carried: {problem}"
            ) from problem
        except ValueError as problem:
            raise PipelineError(
                f"state {attribute!r} of operator {name!r} is declared with {problem}; give one of that type"
            ) from problem


def check_node(node: Node) -> None:
    """`check` for the builder: the message begins with the place in the pipeline's file.

    Raises:
        PipelineError: see `check`.
    """
    try:
        check(node.subject, node.name)
    except PipelineError as problem:
        raise PipelineError(f"{node.where}: {problem}") from problem
    for attribute, state in declared(node.subject).items():
        if state.ttl_ns and state.clock == "event":
            what = f"state {attribute!r} of operator {node.name!r} has a time to live by event time"
            check_event_time(node, what, 'or give clock="processing"', side=LEFT)


class Binding:
    """The declared states of one instance of an operator.

    Attributes:
        tables: theirs, in the order of declaration.
    """

    def __init__(
        self,
        operator: Operator,
        name: str,
        ctx: Any,
        key_groups: int,
        now: Callable[[], int],
        event_ns: Callable[[], int | None],
        disk: Disk | None = None,
        undo: Undo | None = None,
    ) -> None:
        """
        Args:
            operator: the task's own instance; its attributes are set.
            ctx: whose `key` is the current one.
            now: the wall clock as a determinant, in ns.
            event_ns: the event time of what is worked on, otherwise the watermark, if either is known.
            disk: where what is not in memory is; None to have all in memory.
            undo: what takes back changes of a record that fails; None where nothing is taken back.

        Raises:
            PipelineError: see `check`.
        """
        check(operator, name)
        self._operator = name
        self._states: dict[str, State] = {}
        for attribute, state in declared(operator).items():
            bound = state.bound(attribute, name, ctx, key_groups, now, event_ns, undo)
            setattr(operator, attribute, bound)
            self._states[attribute] = bound
        self._aging: dict[Clock, list[State]] = {
            clock: [state for state in self._states.values() if state.ttl_ns and state.clock == clock]
            for clock in ("event", "processing")
        }
        self.tables: list[Table] = [state.table for state in self._states.values()]
        if disk is not None:
            for state in self._states.values():
                pack, unpack = state.table.forms()
                values = disk.values(pack, unpack, len(self._states) + 1)
                state.table.keep(values, values)
        self._removed = 0

    def __len__(self) -> int:
        return len(self._states)

    def keys(self) -> Iterator[Any]:
        """Every key that has something, once per state that has."""
        for table in self.tables:
            yield from table.values

    def shown(self, key: Any) -> dict[str, Any]:
        """What is kept for a key, by attribute."""
        told = {name: state.shown(key) for name, state in self._states.items()}
        return {name: value for name, value in told.items() if value is not None}

    # Time to live.

    def advance(self, clock: Clock, now_ns: int) -> None:
        """That clock shows so much: what nobody can see any more goes."""
        for state in self._aging[clock]:
            self._expire(state, state.table.expiry.advance(now_ns))

    def finish(self, mark_ns: int) -> None:
        """No record will come: what is too old by the last watermark goes, all of it."""
        for state in self._aging["event"]:
            self._expire(state, state.table.expiry.gone_by(mark_ns))

    def _expire(self, state: State, places: Sequence[Any]) -> None:
        for place in places:
            state.expire(place)
        self._removed += len(places)

    def expired(self) -> int:
        """How many values, lists and entries have come to the end of their time to live since this was last asked."""
        found = self._removed + sum(state.renewed for state in self._aging["event"])
        self._removed = 0
        for state in self._aging["event"]:
            state.renewed = 0
        return found

    def next_ns(self) -> int | None:
        """When, by the wall clock, something may next become too old."""
        aging = self._aging["processing"]
        if not aging:
            return None
        found = [at_ns for state in aging if (at_ns := state.table.expiry.next_ns()) is not None]
        return min(found) if found else None

    # Snapshots.

    def header(self) -> dict[str, Any]:
        """Of each state its kind, its type and how old it is: what reading its fragments takes."""
        return {
            name: [state.word, state.table.codec.shape, state.table.expiry and state.table.expiry.header()]
            for name, state in self._states.items()
        }

    def merge_headers(self, told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """One header out of those of several tasks, in which only the ages may differ."""
        merged = dict(told[0])
        for name, (word, shape, age) in told[0].items():
            merged[name] = [word, shape, age and merged_ages([header[name][2] for header in told])]
        return merged

    def load_header(self, told: Mapping[str, Any]) -> None:
        """Be ready for the fragments that follow.

        Raises:
            PipelineError: a state is declared in a way in which they cannot be read.
        """
        for name, (word, shape, age) in told.items():
            state = self._states.get(name)
            if state is None:
                continue
            where = f"state {name!r} of operator {self._operator!r}"
            if state.word != word:
                raise PipelineError(f"{where} was {word}, is read as {state.word}; give it a new name, or start anew")
            table: Any = state.table
            table.read = table.codec.reader(shape, where)
            if age is not None and table.expiry is not None:
                table.expiry.load_header(age)
