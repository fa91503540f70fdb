"""The origin of each record of a replay: what reached the operators, and what it depends on (0057).

A *cause* is what a record comes from: an input record, a *visit* (a record that reached an operator with state), or a
*derivation*, which several visits have caused together. Operators without state pass causes on. What a visit emits
depends on the visits of its key before it, back to the last one that found no state; that is a fact about state, not
about code, and thereby an upper bound. Nothing here performs or reads anything.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from causal.errors import PipelineError

VISITS_MAX = 10_000_000
"""The maximum number of visits that are kept, in about 2 GB."""
BODIES_BYTES_MAX = 1 << 30
"""The maximum size of the kept contents; the oldest half is dropped beyond it."""

FOLDS, LATEST, STATE, PARTS = "folds", "latest", "state", "parts"
"""Modes of dependence on the visits of a key: each one counts; only the last of each input counts; any of them may
count; or derivations say which of them do."""


class Event(NamedTuple):
    """An event of a task: its number in the epoch, from 1, and where its entry begins in the log of the epoch."""

    epoch: int
    task: str
    number: int
    kind: str
    begun_bytes: int


@dataclass(slots=True)
class TracedOperator:
    """An operator of one subtask.

    Attributes:
        kind: the builder method that created it.
        mode: how its output depends on the visits of a key.
        stateful: whether records that reach it are visits.
    """

    subtask: str
    name: str
    kind: str
    mode: str
    stateful: bool = False


@dataclass(slots=True, eq=False)
class Derivation:
    """The common cause of records that come from more than one record.

    Attributes:
        operator: the place of the operator; -1 if the operator has no state.
        kind: what happened: `window`, `timer`, `join`, `answer`, `records`, `letter` or `watermark`.
        causes: what it certainly comes from.
        keys: the keys on whose visits it may also depend; None for all keys of the operator.
        until: only visits below this number are meant.
        window: the bounds of a window in ns; only visits with a time within them are meant.
        exact: whether all of this took part.
        older: whether it also comes from what was before the replay.
    """

    operator: int
    event: int
    kind: str
    causes: tuple[Cause, ...] = ()
    keys: tuple[Any, ...] | None = ()
    until: int = 0
    window: tuple[int, int] | None = None
    exact: bool = False
    older: bool = False


Cause = int | Derivation
"""A number below 0 is an input record: -1 less the number of its element. Other numbers are visits."""


class History:
    """The visits of one key at one operator, and the places in them at which the key had no state."""

    __slots__ = ("empties", "visits")

    def __init__(self) -> None:
        self.visits = array("Q")
        self.empties: list[int] = []

    def since(self, end: int) -> int | None:
        """Return the last place before `end` at which there was no state; None if there was some all the time."""
        place = bisect_left(self.empties, end)
        return self.empties[place - 1] if place else None


class _Delivered(NamedTuple):
    """Elements that were delivered: the number of the first one, its channel and its position."""

    number: int
    channel: int
    position: int


class Provenance:
    """The visits, elements and events of a replay so far.

    Attributes:
        operators: the operators with state, or with derivations.
        events: the events in which something happened to them.
        times: visit → the time by which a window takes its record, in ns.
    """

    def __init__(self) -> None:
        self.operators: list[TracedOperator] = []
        self.events: list[Event] = []
        self.times: dict[int, int] = {}
        self.operator_of = array("L")
        self.event_of = array("L")
        self.side_of = bytearray()
        self.cause_of: list[Cause] = []
        self.key_of: list[Any] = []
        self.element_of = array("q")
        """The element that a visit is; -1 if its record was emitted within its subtask."""
        self._histories: list[dict[Any, History]] = []
        self._delivered: list[_Delivered] = []
        self._bodies: list[Any] = []
        self._elements = 0
        self._body_bytes = 0
        self._dropped = 0

    def operator(self, operator: TracedOperator) -> int:
        """Add an operator and return its place."""
        self.operators.append(operator)
        self._histories.append({})
        return len(self.operators) - 1

    def deliver(self, channel: int, position: int, count: int, body: bytes) -> int:
        """Add elements of a channel between subtasks, of which `body` has the records; return the first number."""
        number = self._elements
        self._delivered.append(_Delivered(number, channel, position))
        self._bodies.append(body)
        self._elements += count
        self._body_bytes += len(body)
        if self._body_bytes > BODIES_BYTES_MAX:
            half = (self._dropped + len(self._bodies)) // 2
            self._body_bytes -= sum(len(each) for each in self._bodies[self._dropped : half])
            self._bodies[self._dropped : half] = [None] * (half - self._dropped)
            self._dropped = half
        return number

    def visit(
        self, operator: int, side: int, keys: Sequence[Any], causes: Sequence[Cause], elements: Sequence[int],
        empty: frozenset[Any],
    ) -> int:  # fmt: skip
        """Add visits of the current event and return the number of the first one.

        Args:
            elements: the elements that these records are, if they were delivered to the subtask.
            empty: those of the keys that have no state.

        Raises:
            PipelineError: there are more than `VISITS_MAX`.
        """
        first, count, event = len(self.cause_of), len(keys), len(self.events) - 1
        if first + count > VISITS_MAX:
            raise PipelineError(
                f"between the checkpoint and the row, operators with state have received more than {VISITS_MAX:,} "
                "records; use a lower --back, or name an earlier row"
            )
        self.operator_of.extend([operator] * count)
        self.event_of.extend([event] * count)
        self.side_of.extend(bytes([side]) * count)
        self.cause_of += causes
        self.key_of += keys
        self.element_of.extend(elements or [-1] * count)
        histories, seen = self._histories[operator], set[Any]()
        for visit, key in enumerate(keys, first):
            history = histories.get(key)
            if history is None:
                history = histories[key] = History()
            if key in empty and key not in seen:
                seen.add(key)
                history.empties.append(len(history.visits))
            history.visits.append(visit)
        return first

    def empty_before(self, visit: int) -> None:
        """Record that the key of a visit has no state immediately before it."""
        history = self.history(self.operator_of[visit], self.key_of[visit])
        place = bisect_left(history.visits, visit)
        if not history.empties or history.empties[-1] < place:
            history.empties.append(place)

    def history(self, operator: int, key: Any) -> History:
        """Return the history of a key."""
        return self._histories[operator].get(key) or History()

    def keys(self, operator: int) -> Iterator[Any]:
        """Return the keys that have visited an operator."""
        return iter(self._histories[operator])

    def place(self, element: int) -> tuple[int, int]:
        """Return the channel and the position of an element."""
        _, channel, position, offset = self._located(element)
        return channel, position + offset

    def body(self, element: int) -> tuple[bytes | None, int]:
        """Return the records with which an element was delivered (None if they are dropped), and its place there."""
        index, _, _, offset = self._located(element)
        return self._bodies[index], offset

    def _located(self, element: int) -> tuple[int, int, int, int]:
        index = bisect_right(self._delivered, element, key=lambda each: each.number) - 1
        number, channel, position = self._delivered[index]
        return index, channel, position, element - number


class Edge(NamedTuple):
    """A dependence: `target` comes from `source` as its `record`, or through the `state` of its key."""

    source: Cause
    target: Cause | None
    role: str


RECORD, STATE_OF_KEY = "record", "state"


@dataclass(slots=True)
class Bound:
    """The knowledge about the dependence on the visits of one operator.

    Attributes:
        exact: whether everything that is listed took part.
        older: the keys of which something happened before the replay began.
        visits: the number of visits that are listed.
    """

    exact: bool = True
    older: dict[Any, None] = field(default_factory=dict)
    visits: int = 0


class Origins:
    """Everything that a record comes from.

    Attributes:
        inputs: the elements that are input records, in ascending order.
        nodes: the visits and derivations, each after those that it was reached from.
        edges: the dependences; the target None is the record itself.
        bounds: operator → what is known of the dependence on its visits.
    """

    def __init__(self, provenance: Provenance, cause: Cause) -> None:
        self._provenance = provenance
        self._inputs: set[int] = set()
        self.nodes: dict[Cause, None] = {}
        self.edges: dict[Edge, None] = {}
        self.bounds: dict[int, Bound] = {}
        self._waiting: list[Cause] = []
        """The causes of which the origin has not been added."""
        self._seen: set[int] = set()
        """The visits of which the record has been followed."""
        self._emitting: set[int] = set()
        """The visits of which the state has been followed."""
        self._link(cause, None, RECORD)
        while self._waiting:
            self._follow(self._waiting.pop())
        self.inputs = sorted(self._inputs)

    def _link(self, source: Cause, target: Cause | None, role: str) -> None:
        self.edges[Edge(source, target, role)] = None
        if type(source) is int and source < 0:
            self._inputs.add(-1 - source)
        else:
            self._waiting.append(source)

    def _follow(self, cause: Cause) -> None:
        if isinstance(cause, Derivation):
            if cause not in self.nodes:
                self.nodes[cause] = None
                self._follow_derivation(cause)
        elif cause not in self._emitting:
            self._emitting.add(cause)
            self._follow_output(cause)

    def _see(self, visit: int) -> None:
        """Add a visit and follow its record."""
        if visit not in self._seen:
            self._seen.add(visit)
            self.nodes[visit] = None
            self._bound(self._provenance.operator_of[visit]).visits += 1
            self._link(self._provenance.cause_of[visit], visit, RECORD)

    def _bound(self, operator: int) -> Bound:
        return self.bounds.setdefault(operator, Bound())

    def _follow_output(self, visit: int) -> None:
        """Follow what an operator emitted for a visit: its record, and the visits that may have shaped the state."""
        provenance = self._provenance
        operator, key = provenance.operator_of[visit], provenance.key_of[visit]
        mode, history, bound = provenance.operators[operator].mode, provenance.history(operator, key), None
        self._see(visit)
        if mode == PARTS:
            return
        bound, visits = self._bound(operator), history.visits
        at = bisect_left(visits, visit)
        since = history.since(at + 1)
        if mode == LATEST:
            self._follow_latest(visit, visits[since or 0 : at], since is None)
            return
        if since is None:
            bound.older[key] = None
        if mode == STATE and (at > (since or 0) or since is None):
            bound.exact = False
        for place in range(at, since or 0, -1):
            later, earlier = visits[place], visits[place - 1]
            self._emitting.add(later)
            self.edges[Edge(earlier, later, STATE_OF_KEY)] = None
            if earlier in self._emitting:
                break
            self._see(earlier)
        else:
            self._emitting.add(visits[since or 0])

    def _follow_latest(self, visit: int, before: Sequence[int], older: bool) -> None:
        """Follow the last visit of each input before a visit."""
        provenance = self._provenance
        operator, sides = provenance.operator_of[visit], set[int]()
        for each in reversed(before):
            side = provenance.side_of[each]
            if side not in sides:
                sides.add(side)
                self.edges[Edge(each, visit, STATE_OF_KEY)] = None
                self._see(each)
                self._bound(operator).exact = False
        if older and len(sides) < 2:
            self._bound(operator).older[provenance.key_of[visit]] = None
            self._bound(operator).exact = False

    def _follow_derivation(self, derivation: Derivation) -> None:
        provenance, operator = self._provenance, derivation.operator
        for cause in derivation.causes:
            if type(cause) is int and cause >= 0 and operator >= 0 and provenance.operator_of[cause] == operator:
                self.edges[Edge(cause, derivation, RECORD)] = None
                self._see(cause)
            else:
                self._link(cause, derivation, RECORD)
        bound = self._bound(operator)
        bound.exact = bound.exact and derivation.exact
        keys = provenance.keys(operator) if derivation.keys is None else derivation.keys
        for key in keys:
            history = provenance.history(operator, key)
            visits = history.visits
            end = bisect_left(visits, derivation.until)
            since = history.since(end)
            if derivation.older or (since is None and derivation.window is None):
                bound.older[key] = None
            for place in range(since or 0, end):
                visit = visits[place]
                if self._within(derivation, visit):
                    self.edges[Edge(visit, derivation, STATE_OF_KEY)] = None
                    self._see(visit)
        if derivation.older and not derivation.keys:
            bound.older[None] = None

    def _within(self, derivation: Derivation, visit: int) -> bool:
        if derivation.window is None:
            return True
        time_ns = self._provenance.times.get(visit)
        return time_ns is not None and derivation.window[0] <= time_ns < derivation.window[1]
