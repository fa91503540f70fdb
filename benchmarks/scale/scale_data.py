"""Measures what determinants and handshakes weigh on the wire, by shape of the graph and sharing depth.

All tasks of a keyed count run in one process: production core and production chains, frames handed from one to the
next in a fixed order, so that a figure is the same whenever it is taken.  There are no timers, clocks or sockets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import RunFailed
from causal.channels import wire
from causal.config import JobConfig
from causal.cut import Cut
from causal.events import Started, Turn
from causal.ids import OUTSIDE, TaskIndex
from causal.ports import Request, SinkStore
from causal.task.performer import Disk, Reader, Requests
from causal.task.task import TaskProtocol
from operators import Pipeline
from operators.engine.plan import Plan, plan
from operators.sinks.contract.sink import Sink
from operators.sources import Read, SequenceSource
from operators.testing.cluster import Cluster, Process, Segments
from operators.testing.outside import MemoryStore

HANDSHAKE = {wire.HELLO: "hello", wire.WELCOME: "welcome", wire.LOGS: "logs"}
ROUNDS_MAX = 100_000
TURNS_MAX = 16
LINK_NS = 20_000
"""Virtual time of a round."""
FAR_NS = 1 << 62


def key_of(row: tuple[int, int]) -> int:
    """Return the key of a row, and of a count."""
    return row[0]


def row_of(position: int) -> tuple[int, int]:
    """Return rows over 997 keys."""
    return position * 7919 % 997, position % 10


class NoRequests:
    """An outside world that no task sends requests to."""

    def ask(self, requests: Sequence[Request]) -> None:
        raise RunFailed("a task of the scale benchmark sent a request")


class CountedSink(Sink):
    """Rows are counted where they arrive; nothing is stored."""

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        raise RunFailed("a sink of the scale benchmark has no store of its own")


@dataclass(frozen=True)
class Shape:
    """A graph: `fan_in` sources, `depth` - 1 keyed counts of `width` tasks one after the other, one sink."""

    depth: int
    """Hops from a source to the sink."""
    fan_in: int
    width: int = 2

    def plan(self, config: JobConfig, records: int) -> Plan:
        """Return its tasks and channels."""
        pipeline = Pipeline("scale")
        rows = SequenceSource(_rows, records // self.fan_in, self.fan_in)
        stream = pipeline.source("rows", rows, self.fan_in)
        for stage in range(self.depth - 1):
            stream = stream.key_by(key_of).count(f"count{stage}", parallelism=self.width)
        stream.sink("out", CountedSink())
        return plan(pipeline, config)


def _rows(partition: int, start: int, stop: int) -> list[Any]:
    return [row_of(position * 64 + partition) for position in range(start, stop)]


class DataPlane(Cluster[Process]):
    """All tasks of one graph; `handshake_bytes` counts from its last clearing, `handshakes` the frames by kind."""

    def __init__(self, shape: Shape, sharing_depth: int, records: int, batch_records: int) -> None:
        config = JobConfig(
            run="r", name="scale", pipeline="/p.py", sharing_depth=sharing_depth, batch_elements_max=batch_records
        )
        self.plan = shape.plan(config, records)
        super().__init__(self.plan.topology, config)
        self.now_ns = 1_000
        self.job = config.fingerprint(self.topology)
        self.records = records // shape.fan_in * shape.fan_in
        self.per_partition = records // shape.fan_in
        self.read = 0
        self.handshake_bytes: Counter[str] = Counter()
        self.handshakes: Counter[str] = Counter()
        self._stores = {
            channel.id: MemoryStore(self.topology.tasks[channel.source].name, config.run)
            for channel in self.topology.channels
            if channel.target == OUTSIDE
        }
        for task in range(len(self.topology.tasks)):
            self._promote(task)

    # What tasks have effects on.

    def entropy(self) -> bytes:
        """Nothing here asks for chance."""
        raise RunFailed("a task of the scale benchmark asked for entropy")

    def disk(self, process: Process) -> Disk:
        return Segments(partial(self.feed, process))

    def store(self, process: Process, channel: int) -> SinkStore:
        return self._stores[channel]  # type: ignore[index]

    def reader(self, process: Process, channel: int) -> Reader:
        return _Partition(self, self.topology.channels[channel].partition)

    def requests(self, process: Process) -> Requests:
        return NoRequests()

    def reported(self, process: Process, kind: str, facts: dict[str, Any]) -> None:
        """The tasks have no supervisor."""

    def transmit(self, process: Process, target: int, incarnation: int, parts: list[bytes]) -> None:
        kind = HANDSHAKE.get(wire.read_header(parts, self.job).kind)
        if kind is not None:
            self.handshake_bytes[kind] += sum(map(len, parts))
            self.handshakes[kind] += 1
        super().transmit(process, target, incarnation, parts)

    # The course of things.

    def _promote(self, index: int) -> None:
        own, incarnation = TaskIndex(index), self.incarnations[index] + 1
        chain = self.plan.chain(own)
        task = TaskProtocol(self.topology, own, incarnation, self.config, chain, self, Cut(), [], _refuse)
        process = Process(index=index, incarnation=incarnation, protocol=task)
        self.add(process)
        self.introduce(process)
        self.feed(process, Started())

    def fail(self, name: str) -> None:
        """SIGKILL of a task, and its standby takes over; what is in flight to it is lost."""
        process = next(each for each in self.processes.values() if each.protocol.name == name)
        self.forget(process)
        self.announce_death(process)
        self._promote(process.index)

    def run(self, until_read: int | None = None) -> None:
        """Run until that many records have been read, or until the last row is out.

        Raises:
            RunFailed: the graph does not get there.
        """
        for _ in range(ROUNDS_MAX):
            if all(task.reported_finished for task in self.tasks()) or self.read >= (until_read or self.read + 1):
                return
            self.now_ns += LINK_NS
            for process in list(self.processes.values()):
                process.performer.read_again(FAR_NS)
            for ends, count in [(ends, len(frames)) for ends, frames in self.links.items()]:
                for _ in range(count):
                    self.deliver(ends)
            for process in list(self.processes.values()):
                self._turns(process)
        raise RunFailed(f"{len(self.topology.tasks)} tasks have not ended after {ROUNDS_MAX} rounds")

    def _turns(self, process: Process) -> None:
        """Run like the loop of a worker: until there is nothing to do, but not forever."""
        for _ in range(TURNS_MAX):
            self.feed(process, Turn())
            if process.protocol.idle:
                return

    # What became of it.

    def tasks(self) -> list[TaskProtocol]:
        """Return the tasks that live."""
        return [process.protocol for process in self.processes.values()]

    def rows(self) -> int:
        """Return what the sinks have been given."""
        return sum(store.last_bundle().next for store in self._stores.values())

    def counted(self, name: str) -> int:
        """Return a counter, over all tasks that live."""
        return sum(int(task.counters()[name]) for task in self.tasks())


class _Partition:
    """The reader of a partition, whose rows are all there: one read per round, so that others have their turns."""

    def __init__(self, plane: DataPlane, partition: int) -> None:
        self._plane = plane
        self._partition = partition
        self._read_ns = 0

    def read(self, position: int, count_max: int) -> Read | None:
        if self._read_ns == self._plane.now_ns:
            return None
        self._read_ns = self._plane.now_ns
        rows = _rows(self._partition, position, min(position + count_max, self._plane.per_partition))
        self._plane.read += len(rows)
        return Read(rows, 1, position + len(rows) == self._plane.per_partition)

    def ready_in_s(self, position: int) -> float:
        return 0.0

    def completed(self, position: int) -> None: ...

    def close(self) -> None: ...


def _refuse(line: str) -> None:
    raise RunFailed(f"a task of the scale benchmark complains: {line}")


def determinants(shape: Shape, sharing_depth: int, records: int, batch_records: int) -> dict[str, float]:
    """Return bytes per record read and per data frame, logged and on the wire, in a run without failures."""
    plane = DataPlane(shape, sharing_depth, records, batch_records)
    plane.run()
    if plane.rows() != plane.records:
        raise RunFailed(f"{plane.rows()} rows came out of {plane.records} records")
    channels = sum(OUTSIDE not in (channel.source, channel.target) for channel in plane.topology.channels)
    logged = sum(sum(task.counters()["determinant_bytes"].values()) for task in plane.tasks())
    wired = plane.counted("delta_bytes")
    return {
        "logged_per_record": logged / plane.records,
        "wire_per_record": wired / plane.records,
        "wire_per_frame": wired / plane.counted("sent_frames"),
        "payload_per_record": plane.counted("sent_bytes") / plane.records,
        "held_per_task": plane.counted("log_bytes") / len(plane.processes),
        "connect_bytes_per_channel": sum(plane.handshake_bytes.values()) / channels,
    }


def handshake(shape: Shape, sharing_depth: int, records: int, batch_records: int) -> dict[str, float]:
    """Return bytes and messages of the handshakes of one failure of the first counting task, half way through the
    run.
    """
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
