"""The model of definitions 1 to 5, to be executed: elements Γ, transformations D, recovery F and the reference F*.

A working set W holds all that is in the system: elements that have entered, the state, rows that have not left.  One
step at a time: an element enters, something leaves, a transformation of D takes elements of W and puts others there,
or W is lost and becomes F(A, B).  What the probabilities of the paper are positive for is what some execution does, so
`executions` makes all of them.

One operation reads all channels, in the order of each and in any order between them.  Snapshots leave as outputs do,
and no reader sees them; a row carries the order in which its state came about, for an F that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.guarantees.history import Element, Failed, Output

Inputs = Mapping[str, Sequence[Element]]
"""The elements that may enter, channel by channel."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of the operation, an element as any other.

    Attributes:
        reached: the elements taken, per channel in the order of `Inputs`.
        value: what the operation has made of them.
        order: these elements in the order in which they were taken.
        skipped: elements whose rows are not made again.
    """

    reached: tuple[int, ...]
    value: Hashable
    order: tuple[Element, ...] = ()
    skipped: frozenset[Element] = frozenset()


@dataclass(frozen=True, slots=True)
class Row:
    """The rows of an element, and the order of all elements up to it."""

    element: Element
    content: Hashable
    order: tuple[Element, ...]


Left = Row | State | Failed
"""An output: a row, or a snapshot of the state; and the failures between."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A, B and W at one time.

    Attributes:
        entered: A: the elements that have, per channel.
        left: B, in its order, with the failures.
        state: the state in W.
        rows: the rows in W, in the order in which the operation made them; an element in W is one that has entered
            and that the state has not reached.
    """

    entered: tuple[int, ...]
    left: tuple[Left, ...]
    state: State
    rows: tuple[Row, ...] = ()

    @property
    def seen(self) -> tuple[Row, ...]:
        """The rows that a reader has seen."""
        return tuple(each for each in self.left if isinstance(each, Row))

    @property
    def failures(self) -> int:
        return sum(isinstance(each, Failed) for each in self.left)


Operation = Callable[[Hashable, Element], tuple[Hashable, Hashable]]
"""(value of the state, element) → (value after it, content of its row): D."""

Recovery = Callable[["System", Moment], Moment]
"""F: what W is after a failure; of the moment it may use A and B alone."""


@dataclass(frozen=True, slots=True)
class System:
    """One system (Γ, D, F).

    Attributes:
        withheld: rows leave together with the next snapshot.
        snapshots_max: the most snapshots of one execution.
    """

    inputs: Inputs
    operation: Operation
    first: Hashable
    recovery: Recovery
    withheld: bool = False
    snapshots_max: int = 1

    @property
    def fresh(self) -> State:
        """The state before any element."""
        return State((0,) * len(self.inputs), self.first)

    def taken(self, state: State, channel: int) -> tuple[State, Row]:
        """Perform the transformation of D that takes the next element of a channel."""
        element = tuple(self.inputs.values())[channel][state.reached[channel]]
        value, content = self.operation(state.value, element)
        reached = tuple(count + (place == channel) for place, count in enumerate(state.reached))
        order = (*state.order, element)
        return replace(state, reached=reached, value=value, order=order), Row(element, content, order)

    def snapshot(self, moment: Moment) -> State:
        """Return the last snapshot in B, or the state before any element."""
        return next((each for each in reversed(moment.left) if isinstance(each, State)), self.fresh)

    def steps(self, moment: Moment, failures_max: int) -> Iterator[Moment]:
        """Yield all that can happen next (Definition 1)."""
        channels = tuple(self.inputs.values())
        for channel, elements in enumerate(channels):
            if moment.entered[channel] < len(elements):  # input
                entered = tuple(count + (place == channel) for place, count in enumerate(moment.entered))
                yield replace(moment, entered=entered)
            if moment.state.reached[channel] < moment.entered[channel]:  # transform
                state, row = self.taken(moment.state, channel)
                rows = moment.rows if row.element in state.skipped else (*moment.rows, row)
                yield replace(moment, state=state, rows=rows)
        if moment.rows and not self.withheld:  # output
            yield replace(moment, left=(*moment.left, moment.rows[0]), rows=moment.rows[1:])
        last = self.snapshot(moment)
        if self.withheld and moment.rows:  # output of all that a snapshot covers, in one step
            yield replace(moment, left=(*moment.left, *moment.rows, moment.state), rows=())
        elif not moment.rows and moment.state.reached != last.reached:
            if sum(isinstance(each, State) for each in moment.left) < self.snapshots_max:
                yield replace(moment, left=(*moment.left, moment.state))
        if moment.failures < failures_max:  # failure and recover
            failed = replace(moment, left=(*moment.left, Failed("W is lost")))
            yield self.recovery(self, failed)

    def ended(self, moment: Moment) -> bool:
        """Return whether nothing can happen any more but failures and snapshots."""
        whole = tuple(len(elements) for elements in self.inputs.values())
        return moment.entered == moment.state.reached == whole and not moment.rows


def executions(system: System, failures_max: int) -> set[Moment]:
    """Return every moment of every execution with at most that many failures."""
    reached = {Moment(system.fresh.reached, (), system.fresh)}
    frontier = list(reached)
    while frontier:
        frontier = [new for moment in frontier for new in system.steps(moment, failures_max) if new not in reached]
        frontier = list(dict.fromkeys(frontier))
        reached |= set(frontier)
    return reached


# -- recovery functions -------------------------------------------------------------------------------------------


def reference(system: System, moment: Moment) -> Moment:
    """F* (Definition 3): W is as it was before, which no F can do that knows A and B alone."""
    return moment


def going_back(system: System, moment: Moment) -> Moment:
    """The last snapshot, and all input since is performed again."""
    return replace(moment, state=system.snapshot(moment), rows=())


def from_nothing(system: System, moment: Moment) -> Moment:
    """Return an empty state; what has entered does not come again."""
    return replace(moment, state=replace(system.fresh, reached=moment.entered), rows=())


def by_determinants(system: System, moment: Moment) -> Moment:
    """Return the last snapshot, and then the order that the last row carries, which makes what was seen."""
    state = system.snapshot(moment)
    order = moment.seen[-1].order if moment.seen else ()
    for element in order[len(state.order) :]:
        state, _ = system.taken(state, list(system.inputs).index(element.channel))
    return replace(moment, state=state, rows=())


def dropping_seen(system: System, moment: Moment) -> Moment:
    """Return the last snapshot, all input since in any order, and no row of an element that a reader has seen one
    of.
    """
    skipped = frozenset(row.element for row in moment.seen)
    return replace(moment, state=replace(system.snapshot(moment), skipped=skipped), rows=())


# -- definitions 4 to 9 -------------------------------------------------------------------------------------------

Seen = tuple[tuple[int, ...], tuple[tuple[Element, Hashable], ...]]
"""(A, the rows of B)."""


def said(rows: Sequence[Row]) -> tuple[tuple[Element, Hashable], ...]:
    """Return the rows as a reader sees them, who does not see orders."""
    return tuple((row.element, row.content) for row in rows)


def possible(system: System) -> set[Seen]:
    """Return all (A, B) of the system with reference recovery: those whose probability is not 0 (Definitions 4 and
    5).
    """
    without = replace(system, recovery=reference, withheld=False, snapshots_max=0)
    return {(moment.entered, said(moment.seen)) for moment in executions(without, 0)}


def exactly_once(system: System, failures_max: int) -> bool:
    """Definition 6: each output of each execution with failures is possible with reference recovery."""
    consistent = possible(system)
    return all((m.entered, said(m.seen)) in consistent for m in executions(system, failures_max))


def commutes(system: System) -> bool:
    """Return whether no operation of D is non-commutative (Definition 9): two elements leave the same state and rows in
    either order, from any state.
    """
    for moment in executions(replace(system, recovery=reference, snapshots_max=0), 0):
        channels = [c for c, e in enumerate(system.inputs.values()) if moment.state.reached[c] < len(e)]
        for one in channels:
            for other in channels:
                if one != other:
                    first, row = system.taken(moment.state, one)
                    both, next_row = system.taken(first, other)
                    second, other_row = system.taken(moment.state, other)
                    swapped, last_row = system.taken(second, one)
                    if both.value != swapped.value or (row.content, next_row.content) != (
                        last_row.content,
                        other_row.content,
                    ):
                        return False
    return True


def history_of(moment: Moment) -> list[Output | Failed]:
    """Return an execution as the checker reads it."""
    return [
        each if isinstance(each, Failed) else Output("task", "key", each.element, each.content)
        for each in moment.left
        if not isinstance(each, State)
    ]
