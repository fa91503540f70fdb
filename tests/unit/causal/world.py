"""A small seeded world around the production core: links, disk, stores and death, in one process.

It owns time and chance.  Everything nondeterministic that can happen to a task happens here by one
`random.Random(seed)`, so a seed is a run.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any

from msgspec import convert

from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import WriteSnapshot
from causal.events import (
    CheckpointCompleted,
    CheckpointRequested,
    Event,
    InquiryResolved,
    OrphanQuery,
    ResponseReceived,
    SnapshotWritten,
    Started,
    Turn,
)
from causal.ids import OUTSIDE, TaskIndex
from causal.logs.dissemination import NO_KNOWLEDGE, Knowledge
from causal.logs.rollback import OrphanAnswer, Rollback, TaskRollback, decide
from causal.ports import Request, SinkStore
from causal.records.values import encode
from causal.task.performer import DiskEffect, Reader, Requests
from causal.task.task import TaskProtocol
from causal.topology import Topology
from operators.source import Read
from operators.testing.cluster import Cluster, Process, Segments
from operators.testing.outside import MemoryStore
from tests.simulation.chains import HashingChain
from tests.tasks import FILE, task_of

TIMER_NS = 20_000_000
SERVICES = ("clock", "random", "call", "timer", "ask")


def hashing(topology: Topology, index: TaskIndex, rng: random.Random, traits: Collection[str] = ()) -> HashingChain:
    """Return the chain of a task: any difference in what it receives shows forever.

    Args:
        traits: `marks`: watermarks follow events; `idle`: some of them of idle channels; `plain`: it uses no service,
            so its output follows from its input.
    """
    kinds = [*traits, *(SERVICES if "plain" not in traits else ())]
    outputs, sink = len(topology.outputs(index)), topology.is_sink(index)
    return HashingChain(outputs, sink, False, kinds, lambda: encode(rng.getrandbits(40)), timer_ns=TIMER_NS)


class Disk(Segments):
    """The disk of one task, which answers immediately."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(lambda event: world.feed(process, event))
        self.world = world
        self.process = process

    def ask(self, effect: DiskEffect) -> None:
        if isinstance(effect, WriteSnapshot):
            self.world.snapshots[self.process.index, effect.epoch] = effect.parts
            self.answer(SnapshotWritten(effect.epoch, ("f", 1, "d")))
        else:
            super().ask(effect)


class _Reader:
    """The reader of a partition: a record at each position, all of which are there."""

    def __init__(self, world: World, channel: int) -> None:
        self._world = world
        self._channel = channel

    def read(self, position: int, count_max: int) -> Read:
        return self._world.read(self._channel, position, count_max)

    def ready_in_s(self, position: int) -> float:
        raise AssertionError("all records are there")

    def completed(self, position: int) -> None: ...

    def close(self) -> None: ...


class _Requests:
    """The outside world, which `World.step` has answer."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def ask(self, requests: Sequence[Request]) -> None:
        self._world.outstanding += [(*self._process.life, request) for request in requests]


class World(Cluster[Process]):
    """All tasks of a topology; `step` lets one thing happen, chosen by the seed."""

    def __init__(
        self,
        topology: Topology,
        seed: int,
        records: int,
        depth: int = 1_000_000,
        traits: Collection[str] = (),
        **settings: Any,
    ) -> None:
        config: dict[str, Any] = {
            "channel_window_bytes": 1 << 16,
            "batch_elements_max": 7,
            "latency_target_ms": 0,
            **settings,
        }
        super().__init__(topology, JobConfig(run="r", name="w", pipeline="p", sharing_depth=depth, **config))
        self.traits = traits
        self.rng = random.Random(seed)
        self.records = records
        self.now_ns = 1_000
        self.tasks: dict[int, TaskProtocol] = {}
        """The youngest incarnation of each task, if it lives."""
        self.stores: dict[int, MemoryStore] = {
            c.id: MemoryStore(topology.tasks[c.source].name, "r") for c in topology.channels if c.target == OUTSIDE
        }
        self.snapshots: dict[tuple[int, int], Sequence[bytes]] = {}
        self.acked: dict[int, set[int]] = {}
        self.finished: set[int] = set()
        self.dead: set[int] = set()
        self.phases: list[tuple[str, str]] = []
        self.outstanding: list[tuple[int, int, Request]] = []
        """The requests without a response, and which task sent them in which incarnation."""
        self.faults: list[str] = []
        self.rollback = Rollback()
        self.rollbacks: list[set[int]] = []
        self.inquiry = 0
        self.lost: list[tuple[int, int, int]] = []
        self.findings: dict[int, tuple[int, OrphanAnswer]] = {}
        for task in range(len(topology.tasks)):
            self.promote(task)

    def entropy(self) -> bytes:
        return self.rng.randbytes(16)

    # What tasks have effects on.

    def disk(self, process: Process) -> Disk:
        return Disk(self, process)

    def store(self, process: Process, channel: int) -> SinkStore:
        return self.stores[channel]

    def reader(self, process: Process, channel: int) -> Reader:
        return _Reader(self, channel)

    def requests(self, process: Process) -> Requests:
        return _Requests(self, process)

    def reported(self, process: Process, kind: str, facts: dict[str, Any]) -> None:
        if kind == "snapshot":
            self.acked.setdefault(facts["epoch"], set()).add(process.index)
        elif kind == "finding":
            self.findings[process.index] = (process.incarnation, convert(facts["finding"], OrphanAnswer))
        elif kind == "phase":
            self.phases.append((process.protocol.name, facts["phase"]))
            if facts["phase"] == "finished":
                self.finished.add(process.index)

    def read(self, channel: int, position: int, count_max: int) -> Read:
        """Return some of the records that are there."""
        count = min(self.rng.randint(1, count_max), self.records - position)
        partition = self.topology.channels[channel].partition
        records = [("p", partition, position + i) for i in range(count)]
        return Read(records, 1, position + count == self.records)

    # Tasks.

    def handle(self, index: int, event: Event) -> None:
        """Pass an event to a task, and perform what follows."""
        self.feed(self.processes[index, self.incarnations[index]], event)

    def promote(self, index: int, retained: Knowledge = NO_KNOWLEDGE) -> None:
        own, incarnation = TaskIndex(index), self.incarnations[index] + 1
        self.dead.discard(index)
        chain = hashing(self.topology, own, self.rng, self.traits)
        cut = Cut()
        if self.complete:
            parts = self.snapshots[index, self.complete]
            cut = Cut.unpack(parts[0])
            chain.restore(parts[1:])
        task = self.tasks[index] = task_of(
            self.topology, own, incarnation, self.config, chain, self, cut, [FILE],
            self.faults.append, self.rollback, retained,
        )  # fmt: skip
        process = Process(index=index, incarnation=incarnation, protocol=task)
        self.add(process)
        self.introduce(process)
        self.feed(process, Started())
        if self.lost:
            self.feed(process, OrphanQuery(self.inquiry, self.lost))

    def kill(self, index: int) -> None:
        process = self.end(index)
        self.dead.add(index)
        self.announce_death(process)

    def end(self, index: int) -> Process:
        """End the youngest incarnation of a task."""
        process = self.processes[index, self.incarnations[index]]
        self.forget(process)
        del self.tasks[index]
        self.finished.discard(index)
        for acks in self.acked.values():
            acks.discard(index)
        return process

    # What the supervisor does about lost determinants (D9).

    def escalate(self) -> None:
        """Ask all tasks when one has found something lost; decides when all have answered."""
        lost = sorted({each for task in self.tasks.values() for each in task.lost})
        if lost and lost != self.lost:
            self.inquiry, self.lost, self.findings = self.inquiry + 1, lost, {}
            for index in sorted(self.tasks):
                self.handle(index, OrphanQuery(self.inquiry, self.lost))
        answered = all(self.findings.get(i, (0,))[0] == self.incarnations[i] for i in self.incarnations)
        if not self.lost or self.dead or not answered:
            return
        stands = decide({index: finding for index, (_, finding) in self.findings.items()})
        retreats = {index: TaskRollback(self.incarnations[index] + 1, stands[index]) for index in stands}
        lost_before = tuple(each for each in self.rollback.lost if each[2] >= self.complete)
        now_lost = tuple((self.inquiry, *each) for each in self.lost)
        self.rollback = Rollback(self.inquiry, (*lost_before, *now_lost), retreats)
        self.rollbacks.append({i for i, (_, finding) in self.findings.items() if finding.orphan is not None})
        self.lost, self.findings = [], {}
        for index in sorted(self.tasks):
            if index not in retreats:
                self.handle(index, InquiryResolved(self.rollback))
        for index in sorted(retreats):
            self.promote(index, self.end(index).protocol.retained(self.rollback))

    # The course of things.

    def _answer(self) -> None:
        """The outside answers one of the requests, in any order; sometimes twice, sometimes to who is not there."""
        place = self.rng.randrange(len(self.outstanding))
        index, incarnation, request = self.outstanding[place]
        if self.rng.random() < 0.8:
            del self.outstanding[place]
        if index in self.tasks and (self.incarnations[index] == incarnation or self.rng.random() < 0.1):
            self.handle(index, ResponseReceived(request.operator, request.number, self.rng.randbytes(4)))

    def step(self) -> None:
        """Perform one random action."""
        self.escalate()
        self.now_ns += self.rng.randint(1, 40_000)
        if self.outstanding and self.rng.random() < 0.2:
            self._answer()
        busy = [ends for ends, frames in self.links.items() if frames]
        if busy and self.rng.random() < 0.6:
            self.deliver(self.rng.choice(busy))
        elif self.tasks:
            self.handle(self.rng.choice(sorted(self.tasks)), Turn())

    def checkpoint(self) -> None:
        """Request the next checkpoint, or complete the current one if all tasks have acknowledged it."""
        if self.asked == self.complete:
            self.asked += 1
        for process in self.sources():
            self.feed(process, CheckpointRequested(self.asked, hold=self.pressed()))
        if len(self.acked.get(self.asked, ())) == len(self.topology.tasks):
            self.complete = self.asked
            for index in list(self.tasks):
                self.handle(index, CheckpointCompleted(self.complete))

    def pressed(self) -> bool:
        """Return whether a task has reached half of a bound on what it keeps, as a supervisor learns from beats."""
        return any(task.retention.wanted_epoch > self.complete for task in self.tasks.values())

    def done(self) -> bool:
        sinks = {t.index for t in self.topology.tasks if self.topology.is_sink(t.index)}
        return sinks <= self.finished and not self.dead
