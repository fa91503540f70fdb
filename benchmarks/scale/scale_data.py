"""Measures what determinants and handshakes weigh on the wire, by shape of the graph and sharing depth.

All tasks of a keyed count run in one process: production core and production chains, frames handed from one to the
next in a fixed order, so that a figure is the same whenever it is taken.  There are no timers, clocks or sockets.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import RunFailed
from causal.channels import wire
from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import Effect, OpenSink, ReadSource, Reply, Send, WriteBundle
from causal.events import Event, FrameReceived, PeerDown, PeerUp, SinkOpened, SourceRead, Started, Turn
from causal.ids import OUTSIDE, ChannelId, TaskIndex
from causal.logs.log import DeterminantLog
from causal.ports import Bundle, SinkStore, StoreState, WithdrawPoint
from causal.task.task import TaskProtocol
from operators import Pipeline
from operators.engine.plan import Plan, plan
from operators.sinks.contract.sink import Sink
from operators.sources import SequenceSource

HANDSHAKE = {wire.HELLO: "hello", wire.WELCOME: "welcome", wire.LOGS: "logs"}
ROUNDS_MAX = 100_000
TURNS_MAX = 16
LINK_NS = 20_000
"""Virtual time of a round."""


def key_of(row: tuple[int, int]) -> int:
    """The key of a row, and of a count."""
    return row[0]


def row_of(position: int) -> tuple[int, int]:
    """Rows over 997 keys."""
    return position * 7919 % 997, position % 10


class CountedSink(Sink):
    """Rows are counted where they arrive; nothing is stored."""

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        raise RunFailed("a sink of the scale benchmark has no store of its own")


@dataclass(frozen=True)
class Shape:
    """A graph: `fan_in` sources, `depth` - 1 keyed counts of `width` tasks one behind the other, one sink."""

    depth: int
    """Hops from a source to the sink."""
    fan_in: int
    width: int = 2

    def plan(self, config: JobConfig, records: int) -> Plan:
        """Its tasks and channels."""
        pipeline = Pipeline("scale")
        rows = SequenceSource(_rows, records // self.fan_in, self.fan_in)
        stream = pipeline.source("rows", rows, self.fan_in)
        for stage in range(self.depth - 1):
            stream = stream.key_by(key_of).count(f"count{stage}", parallelism=self.width)
        stream.sink("out", CountedSink())
        return plan(pipeline, config)


def _rows(partition: int, start: int, stop: int) -> list[Any]:
    return [row_of(position * 64 + partition) for position in range(start, stop)]


class _Store:
    """The determinants that a sink's store holds."""

    def __init__(self) -> None:
        self.rows = 0
        self._digest = 0
        self._logs: dict[int, DeterminantLog] = {}
        self._marks: list[WithdrawPoint] = []

    def last_bundle(self) -> StoreState:
        logs = tuple(delta for log in self._logs.values() for delta in log.deltas({}))
        return StoreState(self.rows, self._digest, logs, tuple(self._marks))

    def write(self, bundle: Bundle) -> None:
        if bundle.first != self.rows:
            raise RunFailed(f"a sink was given row {bundle.first} where row {self.rows} belongs")
        end = bundle.first + bundle.count
        if bundle.depends is not None:
            if not self._marks:
                self._marks.append(WithdrawPoint(bundle.first, self._digest, bundle.epoch, bundle.rollback, ()))
            self._marks.append(WithdrawPoint(end, bundle.digest, bundle.epoch, bundle.rollback, bundle.depends))
        self.rows, self._digest = end, bundle.digest
        for delta in bundle.logs:
            self._logs.setdefault(delta.task, DeterminantLog(delta.task)).merge(delta)


class DataPlane:
    """All tasks of one graph; `handshake_bytes` counts from its last clearing."""

    def __init__(self, shape: Shape, sharing_depth: int, records: int, batch_records: int) -> None:
        self.config = JobConfig(
            run="r", name="scale", pipeline="/p.py", sharing_depth=sharing_depth, batch_elements_max=batch_records
        )
        self.records = records // shape.fan_in * shape.fan_in
        self.plan = shape.plan(self.config, records)
        self.topology = self.plan.topology
        self.tasks: dict[int, TaskProtocol] = {}
        self.handshake_bytes: Counter[str] = Counter()
        self.handshakes: Counter[str] = Counter()
        """Frames, by kind."""
        self.read = 0
        self.job = self.config.fingerprint(self.topology)
        self._per_partition = records // shape.fan_in
        self._incarnations: Counter[int] = Counter()
        self._frames: deque[tuple[int, bytes, list[bytes]]] = deque()
        self._waiting: list[tuple[int, ReadSource]] = []
        self._stores: dict[int, _Store] = {}
        self.now_ns = 1_000
        for task in range(len(self.topology.tasks)):
            self._promote(task)

    # causal.ports.Environment
    def wall_ns(self) -> int:
        """Virtual."""
        return self.now_ns

    def entropy(self) -> bytes:
        """Nothing here asks for chance."""
        raise RunFailed("a task of the scale benchmark asked for entropy")

    def _promote(self, index: int) -> None:
        self._incarnations[index] += 1
        here = TaskIndex(index)
        self.tasks[index] = TaskProtocol(
            self.topology, here, self._incarnations[index], self.config, self.plan.chain(here), self, Cut(), [], _refuse
        )
        for other in (*self.topology.upstream(here), *self.topology.downstream(here)):
            if other in self.tasks:
                self._handle(other, PeerUp(here, self._incarnations[index]))
                self._handle(index, PeerUp(other, self._incarnations[other]))
        self._handle(index, Started())

    def fail(self, name: str) -> None:
        """SIGKILL of a task, and its standby takes over; what is in flight to it is lost."""
        task = self.topology.named(name)
        if task is None:
            raise RunFailed(f"there is no task {name}")
        index = task.index
        del self.tasks[index]
        self._frames = deque(frame for frame in self._frames if frame[0] != index)
        self._waiting = [(owner, effect) for owner, effect in self._waiting if owner != index]
        for other in self.topology.upstream(index):
            self._handle(other, PeerDown(index, self._incarnations[index]))
        self._promote(index)

    def _handle(self, index: int, event: Event) -> None:
        for effect in self.step(index, event):
            self._perform(index, effect)

    def step(self, index: int, event: Event) -> list[Effect]:
        """One task learns one event."""
        return self.tasks[index].handle(event, self.now_ns)

    def _perform(self, index: int, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._carry(effect.target, b"%d/%d" % (index, self._incarnations[index]), effect.parts)
        elif isinstance(effect, Reply):
            target, incarnation = map(int, effect.link.split(b"/"))
            if self._incarnations[target] == incarnation:
                self._carry(target, b"", effect.parts)
        elif isinstance(effect, OpenSink):
            store = self._stores.setdefault(effect.channel, _Store())
            self._handle(index, SinkOpened(ChannelId(effect.channel), store.last_bundle()))
        elif isinstance(effect, WriteBundle):
            self._stores[effect.channel].write(effect.bundle)
        elif isinstance(effect, ReadSource):
            self._waiting.append((index, effect))

    def _carry(self, target: int, link: bytes, parts: list[bytes]) -> None:
        kind = HANDSHAKE.get(wire.read_header(parts, self.job).kind)
        if kind is not None:
            self.handshake_bytes[kind] += sum(map(len, parts))
            self.handshakes[kind] += 1
        self._frames.append((target, link, parts))

    def _answer_read(self, index: int, effect: ReadSource) -> None:
        partition = self.topology.channels[effect.channel].partition
        stop = min(effect.position + effect.count_max, self._per_partition)
        rows = _rows(partition, effect.position, stop)
        self.read += len(rows)
        self._handle(index, SourceRead(effect.channel, effect.position, rows, 1, stop == self._per_partition))

    def run(self, until_read: int | None = None) -> None:
        """Runs until that many records have been read, or until the last row is out.

        Raises:
            RunFailed: the graph does not get there.
        """
        for _ in range(ROUNDS_MAX):
            if self._finished() or (until_read is not None and self.read >= until_read):
                return
            self.now_ns += LINK_NS
            waiting, self._waiting = self._waiting, []
            for index, effect in waiting:
                self._answer_read(index, effect)
            for _ in range(len(self._frames)):
                target, link, parts = self._frames.popleft()
                if target in self.tasks:
                    self._handle(target, FrameReceived(link, parts))
            for index in sorted(self.tasks):
                self._turns(index)
        raise RunFailed(f"{len(self.topology.tasks)} tasks have not ended after {ROUNDS_MAX} rounds")

    def _turns(self, index: int) -> None:
        """Runs like the loop of a worker: until there is nothing to do, but not for ever."""
        for _ in range(TURNS_MAX):
            self._handle(index, Turn())
            if self.tasks[index].idle:
                return

    def _finished(self) -> bool:
        return all(task.reported_finished for task in self.tasks.values())

    def rows(self) -> int:
        """Returns what the sink has been given."""
        return sum(store.rows for store in self._stores.values())

    def counted(self, name: str) -> int:
        """A counter, over all tasks that live."""
        return sum(int(task.counters()[name]) for task in self.tasks.values())

    def logged(self) -> int:
        """Bytes of determinants that their owners wrote."""
        return sum(sum(task.counters()["determinant_bytes"].values()) for task in self.tasks.values())


def _refuse(line: str) -> None:
    raise RunFailed(f"a task of the scale benchmark complains: {line}")


def determinants(shape: Shape, sharing_depth: int, records: int, batch_records: int) -> dict[str, float]:
    """Bytes per record read and per data frame, logged and on the wire, in a run without failures."""
    plane = DataPlane(shape, sharing_depth, records, batch_records)
    plane.run()
    if plane.rows() != plane.records:
        raise RunFailed(f"{plane.rows()} rows came out of {plane.records} records")
    channels = sum(OUTSIDE not in (channel.source, channel.target) for channel in plane.topology.channels)
    logged, wired = plane.logged(), plane.counted("delta_bytes")
    return {
        "logged_per_record": logged / plane.records,
        "wire_per_record": wired / plane.records,
        "wire_per_frame": wired / plane.counted("sent_frames"),
        "payload_per_record": plane.counted("sent_bytes") / plane.records,
        "held_per_task": plane.counted("log_bytes") / len(plane.tasks),
        "connect_bytes_per_channel": sum(plane.handshake_bytes.values()) / channels,
    }


def handshake(shape: Shape, sharing_depth: int, records: int, batch_records: int) -> dict[str, float]:
    """Bytes and messages of the handshakes of one failure of the first counting task, half way through the run."""
    plane = DataPlane(shape, sharing_depth, records, batch_records)
    plane.run(until_read=plane.records // 2)
    plane.handshake_bytes.clear()
    plane.handshakes.clear()
    plane.fail("count0/0")
    plane.run()
    if plane.rows() != plane.records:
        raise RunFailed(f"{plane.rows()} rows came out of {plane.records} records after a failure")
    return {
        "failure_messages": sum(plane.handshakes.values()),
        **{f"failure_{kind}_bytes": plane.handshake_bytes[kind] for kind in HANDSHAKE.values()},
    }
