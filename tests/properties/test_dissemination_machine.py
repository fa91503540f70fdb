"""Determinants in a random graph, over channels that lose and repeat: every replica is a prefix, no task asks twice.

Channels behave as `causal.channels.exchange` has them: messages of a session arrive in order or not at all, a lost one
is noticed by the next, and what the receiver then says it holds begins a new session.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from benchmarks.harness.graphs import graph
from causal.ids import TaskIndex
from causal.logs.deltas import pack_deltas, unpack_deltas
from causal.logs.dissemination import Holdings, Seen
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent, vector_of
from causal.topology import FULL_DEPTH

TASKS_MAX = 5
Message = tuple[list[LogDelta], list[Extent]]


@dataclass
class Edge:
    """One channel and what is under way on it: (number in the session, message)."""

    source: int
    target: int
    seen: Seen = field(default_factory=Seen)
    sent: int = 0
    taken: int = 0
    under_way: list[tuple[int, Message]] = field(default_factory=list)
    arrived: list[Message] = field(default_factory=list)


class Dissemination(RuleBasedStateMachine):
    """A graph of two to five tasks, each of which logs, sends, and delivers what it received."""

    @initialize(count=st.integers(2, TASKS_MAX), depth=st.sampled_from((1, 2, 3, FULL_DEPTH)), data=st.data())
    def begin(self, count: int, depth: int, data: st.DataObject) -> None:
        pairs = [(a, b) for b in range(count) for a in range(b)]
        chosen = [pair for pair in pairs if pair[1] == pair[0] + 1 or data.draw(st.booleans())]
        self.topology = graph([f"t/{i}" for i in range(count)], *chosen)
        self.depth = depth
        self.tasks = [Holdings(self.topology, TaskIndex(i), depth, 0) for i in range(count)]
        self.written: list[dict[int, bytes]] = [{} for _ in range(count)]
        self.epoch = 0
        self.edges = [Edge(a, b) for a, b in chosen]

    def _an_edge(self, data: st.DataObject) -> Edge:
        return self.edges[data.draw(st.integers(0, len(self.edges) - 1))]

    @rule(data=st.data(), entry=st.binary(min_size=1, max_size=6))
    def log(self, data: st.DataObject, entry: bytes) -> None:
        task = data.draw(st.integers(0, len(self.tasks) - 1))
        self.tasks[task].own.append(self.epoch, entry)
        self.written[task][self.epoch] = self.written[task].get(self.epoch, b"") + entry

    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        self._send(self._an_edge(data))

    def _send(self, edge: Edge) -> None:
        message = self.tasks[edge.source].lacking(edge.seen)
        edge.under_way.append((edge.sent, message))
        edge.sent += 1
        again = self.tasks[edge.source].lacking(edge.seen)
        assert pack_deltas(*again) == b"", "nothing new costs no bytes"

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        self._arrive(self._an_edge(data))

    def _arrive(self, edge: Edge) -> None:
        if not edge.under_way:
            return
        number, message = edge.under_way.pop(0)
        if number != edge.taken:
            self._resync(edge)
            return
        self._take(edge, message)
        edge.taken += 1

    def _take(self, edge: Edge, message: Message) -> None:
        """Take a message like an element: determinants are stored first, dependencies count when it is delivered."""
        deltas, depends = unpack_deltas(pack_deltas(*message))
        self.tasks[edge.target].merge(deltas)
        self.tasks[edge.target].depend(depends)
        edge.arrived = [*edge.arrived[-3:], message]

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        edge = self._an_edge(data)
        if edge.under_way:
            edge.under_way.pop(data.draw(st.integers(0, len(edge.under_way) - 1)))

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Taking what was taken changes nothing."""
        edge = self._an_edge(data)
        if edge.arrived:
            before = self.tasks[edge.target].size
            deltas, depends = edge.arrived[data.draw(st.integers(0, len(edge.arrived) - 1))]
            self.tasks[edge.target].merge(deltas)
            self.tasks[edge.target].depend(depends)
            assert self.tasks[edge.target].size == before

    @rule(data=st.data())
    def resync(self, data: st.DataObject) -> None:
        self._resync(self._an_edge(data))

    def _resync(self, edge: Edge) -> None:
        asker = (edge.source, *self.topology.ancestors(TaskIndex(edge.source)))
        edge.seen.reset(self.tasks[edge.target].extents_for(asker))
        edge.under_way.clear()
        edge.sent = edge.taken = 0

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule(back=st.integers(0, 2))
    def truncate(self, back: int) -> None:
        """A checkpoint is complete; what is under way of older epochs is ignored where it arrives."""
        for holdings in self.tasks:
            holdings.truncate(max(0, self.epoch - back))

    @rule()
    def flush(self) -> None:
        """Once the network is quiet, every task that may hold a log holds all of it that any task depends on."""
        for edge in sorted(self.edges, key=lambda each: each.source):
            self._resync(edge)
            self._send(edge)
            self._arrive(edge)
        for edge in self.edges:
            self._holds_all(edge.target, edge.source)
        if self.tasks[0].partial:
            for edge in self.edges:
                extents = vector_of(self.tasks[edge.target].dependencies())
                for owner, epoch, extent in self.tasks[edge.source].dependencies():
                    assert extents.get((owner, epoch), 0) >= extent, (
                        "a task that depends on another depends on all that the other depends on"
                    )
            return
        for task in self.topology.tasks:
            for ancestor in self.topology.ancestors(task.index):
                self._holds_all(task.index, ancestor)

    def _holds_all(self, holder: int, owner: int) -> None:
        extents = self.tasks[holder].logs[owner].extents()
        kept_from = self.tasks[holder].own.first_epoch
        assert extents == {e: len(b) for e, b in sorted(self.written[owner].items()) if e >= kept_from}

    @invariant()
    def a_replica_is_a_prefix_of_its_owners_log(self) -> None:
        for holdings in self.tasks:
            for owner, log in holdings.logs.items():
                for epoch, extent in log.extents().items():
                    assert log.bytes_of(epoch) == self.written[owner][epoch][:extent]

    @invariant()
    def a_holder_of_a_log_is_near_enough_and_depends_on_no_more_than_was_written(self) -> None:
        for holdings in self.tasks:
            distance = self.topology.ancestors(holdings.task)
            assert set(holdings.logs) == {holdings.task} | {t for t, hops in distance.items() if hops <= self.depth}
            for owner, epoch, extent in holdings.dependencies():
                assert extent <= len(self.written[owner].get(epoch, b""))
                near = owner == holdings.task or distance[TaskIndex(owner)] <= self.depth
                assert not near or holdings.logs[owner].extent(epoch) >= extent, "always no orphans"
            assert holdings.missing() == [], "there are no orphans while no task fails"


TestDissemination = Dissemination.TestCase
