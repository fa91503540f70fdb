"""A small seeded world around the production core: links, disk, stores and death, in one process.

It owns time and chance.  Everything nondeterministic that can happen to a task happens here by one
`random.Random(seed)`, so a seed is a run.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
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
from causal.ports import Output, PlainChain, Request, Services, SinkStore
from causal.records import batch
from causal.records.batch import Chunk, decode_records, encode_records
from causal.records.values import decode, encode
from causal.task.performer import DiskEffect, Reader, Requests
from causal.task.task import TaskProtocol
from causal.topology import Channel, Task, Topology
from operators.sources.source import Read
from operators.testing.cluster import Cluster, Process, Segments
from operators.testing.outside import MemoryStore


def layered(layers: Sequence[int], ordered: Collection[int] = ()) -> Topology:
    """Sources, then fully connected layers, then sinks; `layers` are their widths, `ordered` says which are ordered."""
    tasks: list[Task] = []
    groups: list[list[int]] = []
    for depth, width in enumerate(layers):
        groups.append([len(tasks) + i for i in range(width)])
        tasks += [Task(len(tasks) + i, f"l{depth}/{i}", (), depth in ordered) for i in range(width)]  # type: ignore[arg-type]
    channels: list[Channel] = []

    def join(source: int, target: int, partition: int = 0) -> None:
        channels.append(Channel(len(channels), source, target, partition))  # type: ignore[arg-type]

    for place, task in enumerate(groups[0]):
        join(OUTSIDE, task, place)
    for above, below in zip(groups, groups[1:]):
        for source in above:
            for target in below:
                join(source, target)
    for task in groups[-1]:
        join(task, OUTSIDE)
    return Topology(tuple(tasks), tuple(channels))


ASKED_MAX = 3
"""Requests that may wait before a chain takes no more records."""


class ChainedHashes(PlainChain):
    """A chain that hashes all its input, in order, into every output: any difference shows for ever.

    Uses every service: clock, seed, calls, timers, and requests, up to `ASKED_MAX` at a time, to the outside.
    """

    def __init__(self, outputs: int, sink: bool, rng: random.Random, traits: Collection[str] = ()) -> None:
        self.rng = rng
        self.marks = "marks" in traits
        self.idles = "idles" in traits
        self.plain = "plain" in traits
        """Whether it uses no service: its output follows from its input."""
        self.outputs = outputs
        self.sink = sink
        self.state: dict[str, Any] = {"chain": b"", "n": 0, "timer": 0, "asked": {}}
        self._new: list[Request] = []

    def _link(self, *facts: object) -> str:
        self.state["chain"] = blake2b(self.state["chain"] + repr(facts).encode(), digest_size=8).digest()
        self.state["n"] += 1
        return str(self.state["chain"].hex())

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        records: list[Any] = []
        for chunk in chunks:
            if chunk.kind == batch.WATERMARK:
                self._link("mark", input, batch.stamp_of(chunk))
                continue
            records += chunk.body if chunk.kind == batch.LISTED else decode_records(chunk.body)
        out = []
        for record in records:
            facts: list[object] = [input, record]
            if self.plain:
                out.append((self._link(*facts), record[1] if self.sink else record))
                continue
            if self.state["n"] % 3 == 0:
                facts.append(services.now_ns())
            if self.state["n"] % 4 == 0:
                facts.append(services.seed())
            if self.state["n"] % 5 == 0:
                facts.append(services.call(lambda: encode(self.rng.getrandbits(40))))
                self.state["timer"] = self.state["timer"] or services.now_ns() + 50
            out.append((self._link(*facts), record[1] if self.sink else record))
            if self.state["n"] % 7 == 0:
                self._ask(services)
        return self._out([(link, r) for link, r in out], chunks[0].origin_ns, len(records)) + self._marks(services)

    def _marks(self, services: Services) -> list[Output]:
        """Returns, if the traits say so, a watermark after each event, and now and then one of an idle channel."""
        if self.sink or not self.marks:
            return []
        stamp = batch.IDLE_NS if self.idles and self.state["n"] % 3 == 0 else self.state["n"]
        return [(ordinal, batch.watermark(stamp)) for ordinal in range(self.outputs)]

    def _out(self, records: list[Any], origin: int, batch_size: int) -> list[Output]:
        if self.sink:
            rows = b"".join(encode([link, list(r) if isinstance(r, tuple) else r]) for link, r in records)
            return [(0, Chunk(batch.ROWS, len(records), rows, origin))] if records else []
        split: dict[int, list[Any]] = {}
        for link, record in records:
            source = record if isinstance(record, tuple) and record and record[0] == "p" else record[1]
            split.setdefault(hash_of(source) % self.outputs, []).append((link, source))
        return [(o, Chunk(batch.RECORDS, len(rs), encode_records(rs), origin)) for o, rs in sorted(split.items())]

    def _ask(self, services: Services) -> None:
        number = self.state["n"]
        self.state["asked"][number] = body = encode([number, services.epoch()])
        self._new.append(Request(0, number, body))

    def answer(self, operator: int, number: int, body: bytes, services: Services) -> list[Output]:
        assert operator == 0
        request = self.state["asked"].pop(number)
        self._link("answer", number, request, body)
        return []

    def asked(self) -> list[Request]:
        requests, self._new = self._new, []
        return requests

    def outstanding(self) -> list[Request]:
        return [Request(0, number, body) for number, body in self.state["asked"].items()]

    def waiting(self) -> bool:
        return bool(self.state["asked"])

    def full(self) -> bool:
        return len(self.state["asked"]) >= ASKED_MAX

    def ended(self, input: int, services: Services) -> list[Output]:
        self._link("ended", input)
        return []

    def next_timer_ns(self) -> int | None:
        return self.state["timer"] or None

    def fire(self, due_ns: int, services: Services) -> list[Output]:
        self.state["timer"] = 0
        self._link("timer", due_ns)
        return []

    def finish(self, services: Services) -> list[Output]:
        return []

    def snapshot(self, full: bool) -> Any:
        return _Whole(encode(self.state))

    def restore(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            self.state = decode(part)


def hash_of(value: object) -> int:
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=4).digest(), "big")


class _Whole:
    full = True

    def __init__(self, part: bytes) -> None:
        self._part = part

    def step(self, keys_max: int) -> bool:
        return True

    def parts(self) -> list[bytes]:
        return [self._part]


class Disk(Segments):
    """The disk of one task, which answers at once."""

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
        config: dict[str, Any] = {"channel_window_bytes": 1 << 16, "batch_elements_max": 7, **settings}
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
        self.snapshots: dict[tuple[int, int], list[bytes]] = {}
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
        """Returns some of the records that are there."""
        count = min(self.rng.randint(1, count_max), self.records - position)
        partition = self.topology.channels[channel].partition
        records = [("p", partition, position + i) for i in range(count)]
        return Read(records, 1, position + count == self.records)

    # Tasks.

    def handle(self, index: int, event: Event) -> None:
        """Passes an event to a task, and performs what follows."""
        self.feed(self.processes[index, self.incarnations[index]], event)

    def promote(self, index: int, retained: Knowledge = NO_KNOWLEDGE) -> None:
        own, incarnation = TaskIndex(index), self.incarnations[index] + 1
        self.dead.discard(index)
        chain = ChainedHashes(len(self.topology.outputs(own)), self.topology.is_sink(own), self.rng, self.traits)
        cut = Cut()
        if self.complete:
            parts = self.snapshots[index, self.complete]
            cut = Cut.unpack(parts[0])
            chain.restore(parts[1:])
        task = self.tasks[index] = TaskProtocol(
            self.topology, own, incarnation, self.config, chain, self, cut, [("f", 1, "d")],
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
        """Ends the youngest incarnation of a task."""
        process = self.processes[index, self.incarnations[index]]
        self.forget(process)
        del self.tasks[index]
        self.finished.discard(index)
        for acks in self.acked.values():
            acks.discard(index)
        return process

    # What the supervisor does about lost determinants (D9).

    def escalate(self) -> None:
        """Asks all tasks when one has found something lost; decides when all have answered."""
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
        """Performs one random action."""
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
        """Requests the next checkpoint, or completes the current one if all tasks have acknowledged it."""
        if self.asked == self.complete:
            self.asked += 1
        for process in self.sources():
            self.feed(process, CheckpointRequested(self.asked, hold=self.pressed()))
        if len(self.acked.get(self.asked, ())) == len(self.topology.tasks):
            self.complete = self.asked
            for index in list(self.tasks):
                self.handle(index, CheckpointCompleted(self.complete))

    def pressed(self) -> bool:
        """Whether a task has reached half of a bound on what it keeps, as a supervisor learns from beats."""
        return any(task.retention.wanted_epoch > self.complete for task in self.tasks.values())

    def done(self) -> bool:
        sinks = {t.index for t in self.topology.tasks if self.topology.is_sink(t.index)}
        return sinks <= self.finished and not self.dead
