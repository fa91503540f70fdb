"""Every state that one task can be in, each met once, and the step that each event takes from it, each computed once.

A task is a function of its state, the event and the time (`causal.task.task`), so what it answers is remembered:
the whole world has many states, its tasks have few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from causal import effects as asked
from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import CausalError
from causal.events import (
    CheckpointCompleted,
    CheckpointRequested,
    Event,
    FrameReceived,
    InquiryResolved,
    OrphanQuery,
    PeerDown,
    PeerUp,
    SinkOpened,
    SnapshotWritten,
    SourceRead,
    StableRead,
    StableWritten,
    Started,
    Turn,
)
from causal.ids import OUTSIDE, TaskIndex
from causal.logs.dissemination import Knowledge
from causal.logs.log import DeterminantLog, LogDelta
from causal.logs.rollback import Extent, Rollback
from causal.task.recovery import State as Phase
from causal.task.task import TaskProtocol
from causal.topology import Topology
from tests.exhaustive.frozen import canonical, freeze, thaw
from tests.exhaustive.witness import Answers, Fact, Witness, token_in
from tests.tasks import FILE, task_of

TICK_NS = 1_100_000_000
"""Longer than any time after which the core asks again."""

EventValue = tuple[Any, ...]
"""An event as a plain value: its name, and its fields."""
EffectValue = tuple[Any, ...]
"""An effect as a plain value; ("error", family, text) for an error."""


@dataclass(frozen=True)
class Facts:
    """The facts that an observer may know of one state of one task.

    Attributes:
        facts: what its operator's state depends on.
        logs: (task, epoch) → (where they begin, bytes held); tokens: of them and of the facts, those that are held.
        inputs: channel → next position wanted; outputs: channel → (first position kept, end).
        peers: neighbour → incarnation that it is known to have.
    """

    task: int
    incarnation: int
    phase: Phase
    facts: frozenset[Fact]
    logs: Mapping[tuple[int, int], tuple[int, bytes]]
    first_epochs: Mapping[int, int]
    inputs: Mapping[int, int]
    outputs: Mapping[int, tuple[int, int]]
    peers: Mapping[int, int]
    finished: bool
    idle: bool
    due_ns: int | None
    lost: tuple[Extent, ...]

    def holds(self, fact: Fact) -> bool:
        return any(owner == fact[0] and token_in(fact) in log for (owner, _), (_, log) in self.logs.items())


def held_in(logs: Mapping[int, DeterminantLog]) -> dict[tuple[int, int], tuple[int, bytes]]:
    """Return (task, epoch) → where the bytes begin that are held, and the bytes."""
    return {
        (owner, epoch): (log.begins.get(epoch, 0), log.bytes_of(epoch))
        for owner, log in logs.items()
        for epoch in log.extents()
    }


def facts_of(task: TaskProtocol, index: int, answers_to: int) -> Facts:
    """Return what is seen of a task from outside."""
    logs = task.holdings.logs
    channels = task.channels
    peers = {c.source: c.peer_incarnation for c in channels.network}
    peers |= {o.target: o.peer_incarnation for o in channels.downstream.values()}
    return Facts(
        index,
        task.incarnation,
        task.recovery.state,
        frozenset(task.execution.chain.facts),  # type: ignore[attr-defined]
        held_in(logs),
        {owner: log.first_epoch for owner, log in logs.items()},
        {channel.id: channel.next for channel in channels.inputs},
        {o.id: (o.log.start, o.log.end) for o in channels.downstream.values()},
        peers,
        task.reported_finished,
        task.idle,
        task.next_deadline_ns(answers_to),
        tuple(task.lost),
    )


class Cores:
    """States of tasks by number, and the table of steps between them.

    Args:
        audit: check that states which count as one behave alike, by stepping each form in which one was met.
    """

    def __init__(
        self, topology: Topology, config: JobConfig, betrays: int, timers: bool, marks: bool, audit: bool = False
    ) -> None:
        self.topology = topology
        self.config = config
        self.betrays = betrays
        self.timers = timers
        self.marks = marks
        self.facts: list[Facts] = []
        self.steps: dict[tuple[int, EventValue, int], tuple[int, tuple[EffectValue, ...]]] = {}
        self.values: list[Any] = []
        """Frames and parts of snapshots, by number."""
        self.audited = 0
        self._audit = audit
        self._frozen: list[bytes] = []
        self._others: dict[int, bytes] = {}
        self._begun: dict[Any, int] = {}
        self._numbers: dict[bytes, int] = {}
        self._places: dict[Any, int] = {}

    def begin(self, index: int, incarnation: int, restored: int, rollback: int, retained: Knowledge) -> int:
        """Return a new incarnation, restored from the snapshot with that number (-1: from the beginning)."""
        key = (index, incarnation, restored, rollback, retained)
        if key not in self._begun:
            parts = self.values[restored] if restored >= 0 else ()
            self._begun[key] = self._begin(index, incarnation, parts, self.values[rollback], retained)
        return self._begun[key]

    def _begin(
        self, index: int, incarnation: int, parts: tuple[bytes, ...], rollback: Rollback, retained: Knowledge
    ) -> int:
        answers = Answers(index, incarnation)
        me = TaskIndex(index)
        chain = Witness(
            index,
            [channel.target == OUTSIDE for channel in self.topology.outputs(me)],
            answers,
            index == self.betrays,
            self.timers,
            self.marks,
        )
        cut = Cut()
        if parts:
            cut = Cut.unpack(parts[0])
            chain.restore(parts[1:])
        task = task_of(
            self.topology, me, incarnation, self.config, chain, answers, cut, [FILE],
            rollback=rollback, retained=retained,
            replayed_per_turn=1,  # so that others can come between any two events
            small_per_turn=1,
        )  # fmt: skip
        return self._keep(task, index, 0)

    def step(self, number: int, event: EventValue, tick: int) -> tuple[int, tuple[EffectValue, ...]]:
        """Return (state after the event, its requests to the world)."""
        key = (number, event, tick)
        outcome = self.steps.get(key)
        if outcome is None:
            outcome = self.steps[key] = self._step(self._frozen[number], number, event, tick)
            other = self._others.get(number)
            if other is not None:
                again = self._step(other, number, event, tick)
                self.audited += 1
                assert again == outcome, f"two forms of one state differ after {event}: {outcome} and {again}"
        return outcome

    def _step(self, frozen: bytes, number: int, event: EventValue, tick: int) -> tuple[int, tuple[EffectValue, ...]]:
        task: TaskProtocol = thaw(frozen)
        now_ns = tick * TICK_NS
        try:
            effects = task.handle(self._event(event), now_ns)
        except (CausalError, AssertionError) as problem:
            return number, (("error", type(problem).__name__, str(problem)),)
        plain = tuple(each for each in map(self._plain, effects) if each)
        return self._keep(task, self.facts[number].task, now_ns), plain

    def retained(self, number: int, rollback: Rollback) -> Knowledge:
        """Return what an incarnation that is rolled back in place keeps."""
        task: TaskProtocol = thaw(self._frozen[number])
        return task.retained(rollback)

    def _keep(self, task: TaskProtocol, index: int, now_ns: int) -> int:
        form = canonical(task)
        number = self._numbers.get(form)
        if number is None:
            number = self._numbers[form] = len(self._frozen)
            self._frozen.append(freeze(task))
            self.facts.append(facts_of(task, index, now_ns))
        elif self._audit and number not in self._others:
            other = freeze(task)
            if other != self._frozen[number]:
                self._others[number] = other
        return number

    def number_of(self, value: Any) -> int:
        """Return the number of a frame or a snapshot, which is kept once."""
        place = self._places.get(value)
        if place is None:
            place = self._places[value] = len(self.values)
            self.values.append(value)
        return place

    # -- events and effects as plain values ------------------------------------------------------------

    def _event(self, value: EventValue) -> Event:
        kind, *rest = value
        if kind == "frame":
            return FrameReceived(rest[0], list(self.values[rest[1]]))
        if kind == "read":
            channel, first, names, ended = rest
            return SourceRead(channel, first, list(names), 0, ended)
        if kind == "written":
            return SnapshotWritten(rest[0], ("f", 1, "d"))
        if kind in ("stable-read", "stable-written"):
            return (
                StableRead([LogDelta(*each) for each in rest[0]])
                if kind == "stable-read"
                else StableWritten(list(rest[0]))
            )
        if kind == "inquired":
            return OrphanQuery(rest[0], list(rest[1]))
        if kind == "kept":
            return InquiryResolved(self.values[rest[0]])
        event: Event = _PLAIN_EVENTS[kind](*rest)
        return event

    def _plain(self, effect: asked.Effect) -> EffectValue:
        if isinstance(effect, asked.Send):
            return ("send", effect.target, self.number_of(tuple(map(bytes, effect.parts))))
        if isinstance(effect, asked.Reply):
            return ("reply", effect.link, self.number_of(tuple(map(bytes, effect.parts))))
        if isinstance(effect, asked.WriteBundle):
            return ("write", effect.channel, effect.bundle)
        if isinstance(effect, asked.ReadSource):
            return ("read", effect.channel, effect.position, effect.count_max)
        if isinstance(effect, asked.WriteSnapshot):
            return ("snapshot", effect.epoch, self.number_of(tuple(effect.parts)))
        if isinstance(effect, asked.ReadStable):
            return ("stable-read",)
        if isinstance(effect, (asked.BeginStable, asked.AppendStable)):
            begins = isinstance(effect, asked.BeginStable)
            return (
                "stable-begin" if begins else "stable-append",
                tuple((delta.task, delta.epoch, delta.offset, delta.bytes) for delta in effect.logs),
            )
        if isinstance(effect, asked.ReportSnapshot):
            return ("ready", effect.epoch)
        if isinstance(effect, asked.OpenSink):
            return ("open", effect.channel)
        if isinstance(effect, asked.TruncateSink):
            return ("truncate", effect.channel, effect.epoch)
        if isinstance(effect, asked.WithdrawRows):
            return ("withdraw", effect.channel, effect.mark)
        if isinstance(effect, asked.OrphanReport):
            return ("found", effect.number, self.number_of(effect.finding))
        if isinstance(effect, (asked.Phase, asked.SourceCompleted, asked.TruncateStable)):
            return ()  # for reports, and for readers and files that forget: these keep all
        raise AssertionError(f"a tiny job needs no {type(effect).__name__}")


_PLAIN_EVENTS: Mapping[str, Any] = {
    "turn": Turn,
    "started": Started,
    "peer": PeerUp,
    "down": PeerDown,
    "opened": SinkOpened,
    "ask": CheckpointRequested,
    "completed": CheckpointCompleted,
}
