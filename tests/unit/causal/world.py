"""A small seeded world around the production core: links, disk, stores and death, in one process.

It owns time and chance.  Everything nondeterministic that can happen to a task happens here by one
`random.Random(seed)`, so a seed is a run.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from causal.channels.sink_channel import depended, truncated
from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import (
    OpenSink,
    OrphanReport,
    ReadSource,
    Reply,
    Send,
    SendRequests,
    SnapshotReady,
    TruncateSink,
    WithdrawRows,
    WriteBundle,
    WriteSnapshot,
)  # fmt: skip
from causal.errors import Fenced
from causal.events import (
    CheckpointCompleted,
    CheckpointRequested,
    FrameReceived,
    InquiryResolved,
    OrphanQuery,
    PeerDown,
    PeerUp,
    ResponseReceived,
    SinkOpened,
    SnapshotWritten,
    SourceRead,
    Started,
    Turn,
)  # fmt: skip
from causal.ids import OUTSIDE
from causal.logs.dissemination import NO_KNOWLEDGE, Knowledge
from causal.logs.log import DeterminantLog
from causal.logs.rollback import OrphanAnswer, Rollback, TaskRollback, decide
from causal.ports import Bundle, Output, PlainChain, Request, Services, StoreState, WithdrawPoint
from causal.records import batch
from causal.records.batch import Chunk, decode_records, encode_records
from causal.records.values import decode, encode
from causal.task.recovery import State
from causal.task.task import TaskProtocol
from causal.topology import Channel, Task, Topology


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


class Store:
    """A sink's store that notices every contradiction at once."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.counts: list[int] = []
        self.count = 0
        self.digest = 0
        self.incarnation = 0
        self.logs: dict[int, DeterminantLog] = {}
        self.marks: list[WithdrawPoint] = []
        self.withdrawn = 0

    def open(self, incarnation: int) -> StoreState:
        assert incarnation > self.incarnation
        self.incarnation = incarnation
        return self.state()

    def state(self) -> StoreState:
        logs = tuple(d for log in self.logs.values() for d in log.deltas({}))
        return StoreState(self.count, self.digest, logs, tuple(self.marks))

    def truncate(self, epoch: int) -> None:
        for log in self.logs.values():
            log.truncate(epoch)
        self.marks = truncated(self.marks, epoch)

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        place = self.marks.index(mark)
        del self.marks[place + 1 :]
        if not place:
            self.marks = [replace(mark, depends=())]
        self.withdrawn += self.count - mark.next
        while self.count > mark.next:
            self.rows.pop()
            self.count -= self.counts.pop()
        assert self.count == mark.next, "a mark is where a bundle ends"
        self.digest = mark.digest
        stands = depended(self.marks)
        for log in self.logs.values():
            log.cut({epoch: extent for (task, epoch), extent in stands.items() if task == log.task})
        return self.state()

    def write(self, bundle: Bundle) -> None:
        if bundle.incarnation < self.incarnation:
            raise Fenced("a zombie")
        assert bundle.first == self.count, (bundle.first, self.count)
        if bundle.depends is not None:
            if not self.marks:
                self.marks.append(WithdrawPoint(self.count, self.digest, bundle.epoch, bundle.rollback, ()))
            end = bundle.first + bundle.count
            self.marks.append(WithdrawPoint(end, bundle.digest, bundle.epoch, bundle.rollback, bundle.depends))
        self.count += bundle.count
        self.counts.append(bundle.count)
        self.rows.append(bundle.rows)
        self.digest = bundle.digest
        for delta in bundle.logs:
            self.logs.setdefault(delta.task, DeterminantLog(delta.task)).merge(delta)


class World:
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
        self.traits = traits
        self.rng = random.Random(seed)
        self.topology = topology
        self.records = records
        config: dict[str, Any] = {"channel_window_bytes": 1 << 16, "batch_elements_max": 7, **settings}
        self.config = JobConfig(run="r", name="w", pipeline="p", sharing_depth=depth, **config)
        self.now_ns = 1_000
        self.tasks: dict[int, TaskProtocol] = {}
        self.incarnations = dict.fromkeys(range(len(topology.tasks)), 0)
        self.wires: dict[tuple[int, int, int, int], deque[list[bytes]]] = {}
        self.stores: dict[int, Store] = {c.id: Store() for c in topology.channels if c.target == OUTSIDE}
        self.snapshots: dict[tuple[int, int], list[bytes]] = {}
        self.acked: dict[int, set[int]] = {}
        self.complete = 0
        self.asked = 0
        self.finished: set[int] = set()
        self.dead: set[int] = set()
        self.phases: list[tuple[str, str]] = []
        self.requests: list[tuple[int, int, Request]] = []
        """The requests without a response, and which task sent them in which incarnation."""
        self.faults: list[str] = []
        self.rollback = Rollback()
        self.rollbacks: list[set[int]] = []
        self.inquiry = 0
        self.lost: list[tuple[int, int, int]] = []
        self.findings: dict[int, tuple[int, OrphanAnswer]] = {}
        for task in range(len(topology.tasks)):
            self.promote(task)

    # Live
    def wall_ns(self) -> int:
        return self.now_ns

    def entropy(self) -> bytes:
        return self.rng.randbytes(16)

    def promote(self, index: int, retained: Knowledge = NO_KNOWLEDGE) -> None:
        self.dead.discard(index)
        self.incarnations[index] += 1
        chain = ChainedHashes(len(self.topology.outputs(index)), self.topology.is_sink(index), self.rng, self.traits)  # type: ignore[arg-type]
        cut = Cut()
        if self.complete:
            parts = self.snapshots[index, self.complete]
            cut = Cut.unpack(parts[0])
            chain.restore(parts[1:])
        task = TaskProtocol(
            self.topology, index, self.incarnations[index], self.config, chain, self, cut, [("f", 1, "d")],  # type: ignore[arg-type]
            self.faults.append, self.rollback, retained,
        )  # fmt: skip
        self.tasks[index] = task
        for other in self.topology.upstream(index):  # type: ignore[arg-type]
            if other in self.tasks:
                self.handle(other, PeerUp(index, self.incarnations[index]))
                self.handle(index, PeerUp(other, self.incarnations[other]))
        for other in self.topology.downstream(index):  # type: ignore[arg-type]
            if other in self.tasks:
                self.handle(index, PeerUp(other, self.incarnations[other]))
                self.handle(other, PeerUp(index, self.incarnations[index]))
        self.handle(index, Started())
        if self.lost:
            self.handle(index, OrphanQuery(self.inquiry, self.lost))

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
            retained = self.tasks[index].retained(self.rollback)
            self.finished.discard(index)
            for acks in self.acked.values():
                acks.discard(index)
            self.promote(index, retained)

    def kill(self, index: int) -> None:
        del self.tasks[index]
        self.dead.add(index)
        self.finished.discard(index)
        for acks in self.acked.values():
            acks.discard(index)
        for end in [e for e in self.wires if e[2] == index]:
            del self.wires[end]
        for other in self.topology.upstream(index):  # type: ignore[arg-type]
            if other in self.tasks:
                self.handle(other, PeerDown(index, self.incarnations[index]))

    def handle(self, index: int, event: Any) -> None:
        task = self.tasks[index]
        for effect in task.handle(event, self.now_ns):
            self._perform(index, effect)

    def _wire(self, source: int, target: int) -> deque[list[bytes]]:
        return self.wires.setdefault((source, self.incarnations[source], target, self.incarnations[target]), deque())

    def _perform(self, index: int, effect: Any) -> None:
        if isinstance(effect, Send):
            if effect.target in self.tasks:
                self._wire(index, effect.target).append(effect.parts)
        elif isinstance(effect, Reply):
            target, incarnation = map(int, effect.link.split(b"/"))
            self._reply(index, target, incarnation, effect.parts)
        elif isinstance(effect, OpenSink):
            self.handle(index, SinkOpened(effect.channel, self.stores[effect.channel].open(self.incarnations[index])))
        elif isinstance(effect, WriteBundle):
            self.stores[effect.channel].write(effect.bundle)
        elif isinstance(effect, ReadSource):
            self.handle(index, self.read(effect))
        elif isinstance(effect, WriteSnapshot):
            self.snapshots[index, effect.epoch] = effect.parts
            self.handle(index, SnapshotWritten(effect.epoch, ("f", 1, "d")))
        elif isinstance(effect, SnapshotReady):
            self.acked.setdefault(effect.epoch, set()).add(index)
        elif isinstance(effect, TruncateSink):
            self.stores[effect.channel].truncate(effect.epoch)
        elif isinstance(effect, WithdrawRows):
            self.handle(index, SinkOpened(effect.channel, self.stores[effect.channel].withdraw(effect.mark)))
        elif isinstance(effect, SendRequests):
            self.requests += [(index, self.incarnations[index], request) for request in effect.requests]
        elif isinstance(effect, OrphanReport):
            self.findings[index] = (self.incarnations[index], effect.finding)
        elif type(effect).__name__ == "Phase":
            self.phases.append((self.topology.tasks[index].name, effect.name))
            if effect.name == "finished":
                self.finished.add(index)

    def _reply(self, index: int, target: int, incarnation: int, parts: list[bytes]) -> None:
        """Delivers a reply to the process that the frame came from."""
        if target in self.tasks and self.incarnations[target] == incarnation:
            self._wire(index, target).append(parts)

    def read(self, effect: ReadSource) -> SourceRead:
        count = min(self.rng.randint(1, effect.count_max), self.records - effect.position)
        partition = self.topology.channels[effect.channel].partition
        records = [("p", partition, effect.position + i) for i in range(count)]
        ended = effect.position + count == self.records
        return SourceRead(effect.channel, effect.position, records, 1, ended)

    def _answer(self) -> None:
        """The outside answers one of the requests, in any order; sometimes twice, sometimes to who is not there."""
        place = self.rng.randrange(len(self.requests))
        index, incarnation, request = self.requests[place]
        if self.rng.random() < 0.8:
            del self.requests[place]
        if index in self.tasks and (self.incarnations[index] == incarnation or self.rng.random() < 0.1):
            self.handle(index, ResponseReceived(request.operator, request.number, self.rng.randbytes(4)))

    def step(self) -> None:
        """Performs one random action."""
        self.escalate()
        self.now_ns += self.rng.randint(1, 40_000)
        if self.requests and self.rng.random() < 0.2:
            self._answer()
        busy = [wire for wire, frames in self.wires.items() if frames]
        if busy and self.rng.random() < 0.6:
            wire = self.rng.choice(busy)
            source, source_inc, target, target_inc = wire
            parts = self.wires[wire].popleft()
            if target in self.tasks and self.incarnations[target] == target_inc:
                downstream = self.topology.upstream(target)  # type: ignore[arg-type]
                link = f"{source}/{source_inc}".encode() if source in downstream else b""
                self.handle(target, FrameReceived(link, parts))
        elif self.tasks:
            self.handle(self.rng.choice(sorted(self.tasks)), Turn())

    def checkpoint(self) -> None:
        """Requests the next checkpoint, or completes the current one if all tasks have acknowledged it."""
        if self.asked == self.complete:
            self.asked += 1
        for index in self.tasks:
            if self.topology.is_source(index):  # type: ignore[arg-type]
                self.handle(index, CheckpointRequested(self.asked, hold=self.pressed()))
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

    def state(self, index: int) -> State:
        return self.tasks[index].recovery.state
