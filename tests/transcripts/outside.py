"""The outside world at work: what tasks ask of stores, partitions and the disk, done at once and written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from causal.effects import (
    AppendStable,
    BeginStable,
    Effect,
    OpenSink,
    ReadSegment,
    ReadSource,
    ReadStable,
    RemoveSegments,
    SourceCompleted,
    SpillSegment,
    TruncateSink,
    TruncateStable,
    WithdrawRows,
    WriteBundle,
    WriteSnapshot,
)  # fmt: skip
from causal.events import Event, SegmentRead, SegmentWritten, SinkOpened, SnapshotWritten, StableRead, StableWritten
from causal.ids import OUTSIDE
from causal.logs.log import LogDelta
from causal.topology import Topology
from tests.simulation.stable import StableFiles
from tests.transcripts.peers import Partition, Store, label
from tests.transcripts.process import Process
from tests.transcripts.words import size


class Outside:
    """Outlives every task.

    Args:
        say: writes a line of the conversation.
        handle: gives a task its answer.
    """

    def __init__(self, topology: Topology, say: Callable[..., None], handle: Callable[[Process, Event], None]) -> None:
        self.partitions: dict[int, Partition] = {c.id: Partition() for c in topology.channels if c.source == OUTSIDE}
        self.stores: dict[int, Store] = {c.id: Store() for c in topology.channels if c.target == OUTSIDE}
        self.snapshots: dict[tuple[int, int], list[bytes]] = {}
        self.slow = False
        """The disk puts snapshots and determinants off."""
        self._stable = StableFiles()
        self._segments: dict[tuple[int, int, int], dict[int, bytes]] = {}
        self._put_off: list[tuple[Process, WriteSnapshot | BeginStable | AppendStable]] = []
        self._reads: dict[int, tuple[Process, ReadSource]] = {}
        self._say = say
        self._handle = handle

    def perform(self, process: Process, effect: Effect) -> bool:
        """Performs an effect, if it is for the outside; returns whether it is."""
        act = _ACTS.get(type(effect))
        if act is not None:
            act(self, process, effect)
        return act is not None

    def forget(self, process: Process) -> None:
        """Forgets a dead process, which gets no answers."""
        self._reads = {c: (p, e) for c, (p, e) in self._reads.items() if p is not process}
        self._put_off = [(p, e) for p, e in self._put_off if p is not process]

    def _open_sink(self, process: Process, effect: OpenSink) -> None:
        state = self.stores[effect.channel].open(process.incarnation)
        self._say(f"{process.shown} -> store", "OPEN", f"for incarnation {process.incarnation}")
        self._say(f"store -> {process.shown}", "HELD", *process.words.store_state(state))
        self._handle(process, SinkOpened(effect.channel, state))

    def _write_bundle(self, process: Process, effect: WriteBundle) -> None:
        self._say(f"{process.shown} -> store", "BUNDLE", *process.words.bundle(effect.bundle, process.log_bytes))
        self.stores[effect.channel].write(effect.bundle)

    def _truncate_sink(self, process: Process, effect: TruncateSink) -> None:
        self._say(f"{process.shown} -> store", "TRUNCATE", f"determinants of epochs below {effect.epoch}")
        self.stores[effect.channel].truncate(effect.epoch)

    def _withdraw(self, process: Process, effect: WithdrawRows) -> None:
        store = self.stores[effect.channel]
        gone = " ".join(store.rows[effect.mark.next :])
        state = store.withdraw(effect.mark)
        self._say(f"{process.shown} -> store", "WITHDRAW", f"rows from {effect.mark.next} on: {gone}")
        self._say(f"store -> {process.shown}", "HELD", *process.words.store_state(state))
        self._handle(process, SinkOpened(effect.channel, state))

    def _read_source(self, process: Process, effect: ReadSource) -> None:
        self._reads[effect.channel] = (process, effect)
        self.answer_reads()

    def answer_reads(self) -> None:
        """Delivers everything that was requested and is available now."""
        for channel, (process, effect) in sorted(self._reads.items()):
            answer = self.partitions[channel].answer(effect) if not process.paused else None
            if answer is not None:
                del self._reads[channel]
                end = [*map(label, answer.records), *["|end|"] * answer.ended]
                said = f"{answer.first}..{answer.first + len(end)}  {' '.join(end)}"
                self._say(f"input -> {process.shown}", "READ", said)
                self._handle(process, answer)

    def _source_completed(self, process: Process, effect: SourceCompleted) -> None:
        self._say(f"{process.shown} -> input", "DONE", f"no task will ask for what is below {effect.position}")

    # -- disk ------------------------------------------------------------------------------------------

    def _write_snapshot(self, process: Process, effect: WriteSnapshot) -> None:
        if self.slow:
            self._say(f"{process.shown} -> disk", "SNAPSHOT", f"epoch {effect.epoch} (the disk is slow)")
            self._put_off.append((process, effect))
            return
        self._say(f"{process.shown} -> disk", "SNAPSHOT", f"epoch {effect.epoch}")
        self.snapshots[process.index, effect.epoch] = effect.parts
        self._handle(process, SnapshotWritten(effect.epoch, ("f", 1, "d")))

    def release_disk(self) -> None:
        """The disk does what it had put off."""
        self.slow = False
        waiting, self._put_off = self._put_off, []
        for process, effect in waiting:
            self.perform(process, effect)

    # -- determinants on stable storage ----------------------------------------------------------------

    def filed(self, task: int, epoch: int) -> bytes:
        """Answers with the content of the newest file of a log."""
        youngest = max((incarnation for owner, incarnation in self._stable.begun if owner == task), default=0)
        return self._stable.youngest(task, youngest).get(epoch, b"")

    def _read_stable(self, process: Process, effect: ReadStable) -> None:
        youngest = self._stable.youngest(process.index, process.incarnation)
        deltas = [LogDelta(process.index, epoch, 0, content) for epoch, content in sorted(youngest.items())]
        self._say(f"disk -> {process.shown}", "FILED", *process.words.deltas(deltas, lambda _, epoch: youngest[epoch]))
        self._handle(process, StableRead(deltas))

    def _begin_stable(self, process: Process, effect: BeginStable) -> None:
        if not self._put_off_too("BEGIN", process, effect):
            self._stable.begin(process.index, process.incarnation, effect.logs)
            self._handle(process, StableWritten([(d.task, d.epoch, len(d.bytes)) for d in effect.logs]))

    def _append_stable(self, process: Process, effect: AppendStable) -> None:
        if not self._put_off_too("FLUSH", process, effect):
            extents = self._stable.append(process.index, process.incarnation, effect.logs)
            self._handle(process, StableWritten(extents))

    def _put_off_too(self, what: str, process: Process, effect: BeginStable | AppendStable) -> bool:
        said = process.words.deltas(effect.logs, process.log_bytes) or ["a file of its own"]
        self._say(f"{process.shown} -> disk", what, *said, "(the disk is slow)" if self.slow else "")
        if self.slow:
            self._put_off.append((process, effect))
        return self.slow

    def _truncate_stable(self, process: Process, effect: TruncateStable) -> None:
        self._say(f"{process.shown} -> disk", "FORGET", f"determinants of epochs below {effect.epoch}")
        self._stable.truncate(process.index, process.incarnation, effect.epoch)

    # -- in flight -------------------------------------------------------------------------------------

    def _spill(self, process: Process, effect: SpillSegment) -> None:
        first, end = effect.entries[0].first, effect.entries[-1].next
        self._segments[process.index, process.incarnation, effect.segment] = {
            entry.first: bytes(entry.payload) for entry in effect.entries if entry.payload is not None
        }
        spilled = sum(entry.size for entry in effect.entries)
        said = f"segment {effect.segment}: elements {first}..{end} in flight, {size(spilled)}"
        self._say(f"{process.shown} -> disk", "SPILL", said)
        self._handle(process, SegmentWritten(effect.channel, effect.segment, first, end - first))

    def _read_segment(self, process: Process, effect: ReadSegment) -> None:
        payloads = self._segments[process.index, process.incarnation, effect.segment]
        self._say(f"disk -> {process.shown}", "LOAD", f"segment {effect.segment}")
        self._handle(process, SegmentRead(effect.channel, effect.segment, payloads))

    def _remove_segments(self, process: Process, effect: RemoveSegments) -> None:
        self._say(f"{process.shown} -> disk", "REMOVE", f"segments {', '.join(map(str, effect.segments))}")


_ACTS: dict[type, Callable[[Outside, Process, Any], None]] = {
    OpenSink: Outside._open_sink,
    WriteBundle: Outside._write_bundle,
    TruncateSink: Outside._truncate_sink,
    WithdrawRows: Outside._withdraw,
    ReadSource: Outside._read_source,
    SourceCompleted: Outside._source_completed,
    WriteSnapshot: Outside._write_snapshot,
    ReadStable: Outside._read_stable,
    BeginStable: Outside._begin_stable,
    AppendStable: Outside._append_stable,
    TruncateStable: Outside._truncate_stable,
    SpillSegment: Outside._spill,
    ReadSegment: Outside._read_segment,
    RemoveSegments: Outside._remove_segments,
}
