"""Binding of an operator's declared states to one task, with their checks, snapshots, restores and expiry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_origin

from causal.errors import PipelineError
from operators.graph import LEFT, Node, check_event_time
from operators.stage.operator import Operator
from operators.state.cold_values import Disk
from operators.state.declared import Clock, ReducingState, State
from operators.state.keyed_tables import KeyedTable
from operators.state.ttl import merged as merged_ages
from operators.state.undo import Undo

RESERVED = frozenset(("timers", "event-timers", "held", "since", "asked", "state", "broadcast"))
"""Names that the runtime uses for parts of an operator's state."""


def declared(operator: Operator) -> dict[str, State]:
    """Return the states that the operator's class or instance declares, in declaration order."""
    return {name: value for name, value in _attributes(operator).items() if isinstance(value, State)}


def _attributes(operator: Operator) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for scope in [*reversed(type(operator).__mro__), operator]:
        attributes.update(vars(scope))
    return attributes


def _check_instances(operator: Operator, name: str) -> None:
    """Refuse an attribute that is a state class, such as `ListState` or `ListState[str]`, instead of an instance."""
    for attribute, value in _attributes(operator).items():
        kind = get_origin(value) or value
        if isinstance(kind, type) and issubclass(kind, State):
            text = kind.__name__ if kind is value else str(value).removeprefix(f"{kind.__module__}.")
            argument = "fn" if issubclass(kind, ReducingState) else ""
            raise PipelineError(f"state {attribute!r} of operator {name!r} is the class {text}; use {text}({argument})")


def check(operator: Operator, name: str) -> None:
    """Check the states that the operator named `name` declares.

    Raises:
        PipelineError: a state is declared incorrectly; the message names the first such state.
    """
    _check_instances(operator, name)
    states = declared(operator)
    if states and getattr(operator, "process_batch", None) is not None:
        raise PipelineError(
            f"operator {name!r} declares state {next(iter(states))!r}, which belongs to one key, but defines "
            "process_batch, which has many keys; define process, or use only ctx.states(keys)"
        )
    for attribute, state in states.items():
        if attribute in RESERVED:
            raise PipelineError(
                f"operator {name!r} declares a state named {attribute!r}, a name that is already taken; rename "
                "the state"
            )
        try:
            state.codec()
        except TypeError as problem:
            raise PipelineError(
                f"state {attribute!r} of operator {name!r} is declared with a type that cannot be encoded: {problem}"
            ) from problem
        except ValueError as problem:
            raise PipelineError(
                f"state {attribute!r} of operator {name!r} is declared with {problem}; use a default of that type"
            ) from problem


def check_node(node: Node) -> None:
    """Perform `check` for the builder; an error message begins with the line in the pipeline file.

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
            check_event_time(node, what, 'or use clock="processing"', side=LEFT)


class Binding:
    """The declared states of one operator instance.

    Attributes:
        tables: the tables of the states, in declaration order.
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
            operator: the instance that the task uses; its attributes are set to the bound states.
            ctx: the context, whose `key` is the current key.
            now: reads the wall clock as a determinant, in nanoseconds.
            event_ns: returns the event time of the current record or timer, otherwise the watermark, or None without
                both.
            disk: the store for state that is not in memory; None to keep all state in memory.
            undo: reverts the changes of a record that fails; None if nothing is reverted.

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
        self.tables: list[KeyedTable] = [state.table for state in self._states.values()]
        if disk is not None:
            for state in self._states.values():
                pack, unpack = state.table.forms()
                values = disk.values(pack, unpack, len(self._states) + 1)
                state.table.keep(values, values)
        self._removed = 0

    def __len__(self) -> int:
        return len(self._states)

    def keys(self) -> Iterator[Any]:
        """Yield every key that has state; a key occurs once for each of its states."""
        for table in self.tables:
            yield from table.values

    def shown(self, key: Any) -> dict[str, Any]:
        """Return the state of a key, by attribute name."""
        shown = {name: state.shown(key) for name, state in self._states.items()}
        return {name: value for name, value in shown.items() if value is not None}

    # Time to live.

    def begin(self) -> None:
        """Record that an event begins, or that the state is being frozen."""
        for state in self._aging["processing"]:
            state.table.expiry.begin()

    def advance(self, clock: Clock, now_ns: int) -> None:
        """Advance a clock, and remove the state that has expired."""
        for state in self._aging[clock]:
            self._expire(state, state.table.expiry.advance(now_ns))

    def finish(self, mark_ns: int) -> None:
        """Remove all state that has expired by the last watermark, after which no record follows."""
        for state in self._aging["event"]:
            self._expire(state, state.table.expiry.gone_by(mark_ns))

    def _expire(self, state: State, places: Sequence[Any]) -> None:
        for place in places:
            state.expire(place)
        self._removed += len(places)

    def expired(self) -> int:
        """Return and reset the number of values, lists and map entries that have expired."""
        expired = self._removed + sum(state.renewed for state in self._aging["event"])
        self._removed = 0
        for state in self._aging["event"]:
            state.renewed = 0
        return expired

    def next_ns(self) -> int | None:
        """Return the next wall-clock time at which state may expire, or None if no state can expire."""
        aging = self._aging["processing"]
        if not aging:
            return None
        times_ns = [at_ns for state in aging if (at_ns := state.table.expiry.next_ns()) is not None]
        return min(times_ns) if times_ns else None

    # Snapshots.

    def header(self) -> dict[str, Any]:
        """Return the kind, type and ages of each state, which are needed to read its fragments."""
        return {
            name: [state.label, state.table.codec.shape, state.table.expiry and state.table.expiry.header()]
            for name, state in self._states.items()
        }

    def merge_headers(self, headers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Merge the headers of several tasks; the headers may differ only in the ages."""
        merged = dict(headers[0])
        for name, (label, shape, age) in headers[0].items():
            merged[name] = [label, shape, age and merged_ages([header[name][2] for header in headers])]
        return merged

    def load_header(self, header: Mapping[str, Any]) -> None:
        """Prepare the tables for the fragments that follow.

        Raises:
            PipelineError: the fragments of a state cannot be read according to its current declaration.
        """
        for name, (label, shape, age) in header.items():
            state = self._states.get(name)
            if state is None:
                continue
            where = f"state {name!r} of operator {self._operator!r}"
            if state.label != label:
                raise PipelineError(
                    f"{where} was {label} and is now read as {state.label}; give the state a new name, or start "
                    "from the beginning"
                )
            table: Any = state.table
            table.read = table.codec.reader(shape, where)
            if age is not None and table.expiry is not None:
                table.expiry.load_header(age)
