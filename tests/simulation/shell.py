"""The shell around a simulated task: performs effects as `causal.shell` does, on what the simulation has instead.

Stores, partitions and the disk may be unavailable, slow or full; a write that a death interrupts never happened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from causal.effects import (
    AppendStable,
    BeginStable,
    CommitRows,
    Effect,
    OpenSink,
    OrphanReport,
    Phase,
    ReadSegment,
    ReadSource,
    ReadStable,
    RemoveSegments,
    Reply,
    Send,
    SendRequests,
    SnapshotReady,
    SourceCompleted,
    SpillSegment,
    StageRows,
    TruncateSink,
    TruncateStable,
    WithdrawRows,
    WriteBundle,
    WriteSnapshot,
)
from causal.errors import Unavailable
from causal.events import (
    Event,
    ResponseReceived,
    RowsCommitted,
    SegmentFailed,
    SegmentRead,
    SegmentWritten,
    SinkOpened,
    SnapshotWritten,
    SourceRead,
)
from causal.ports import Request
from causal.task.task import TaskProtocol
from operators.runtime.membership import Reported
from tests.simulation.clockwork import MS
from tests.simulation.network import Connection
from tests.simulation.peers import Violated
from tests.simulation.stable import StableEffect, StableShell

if TYPE_CHECKING:
    from tests.simulation.process import Process

SNAPSHOT_TRIES_MAX = 5


class Shell:
    """The effects of one process, performed on the simulated world.

    Attributes:
        reads: reads of partitions that had nothing yet, by channel: (position, count).
        rotten: the disk gives back spilled segments damaged.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self.dialled: dict[int, Connection] = {}
        self.reads: dict[int, tuple[int, int]] = {}
        self.segments: dict[int, dict[int, bytes]] = {}
        self.rotten = False
        self.first_record_ns: int | None = None
        self._stable = StableShell(process, lambda event: self._answer(process.task, event))

    def clear(self) -> None:
        """The task restarts in this process."""
        self._stable.finish()
        self.reads.clear()
        self.segments.clear()

    def perform(self, effect: Effect) -> bool:
        """Performs an effect; false if it must be retried before anything else: a store is unavailable."""
        return _PERFORMERS[type(effect)](self, effect)

    def _send(self, effect: Send) -> bool:
        connection = self.dialled.get(effect.target)
        if connection is not None:
            self._world.network.send(connection, tuple(effect.parts))
        return True

    def _reply(self, effect: Reply) -> bool:
        self._world.network.reply(self._process.slot, effect.link, tuple(effect.parts))
        return True

    def _open_sink(self, effect: OpenSink) -> bool:
        store = self._world.stores[effect.channel]
        if not store.reachable(self._world.clock.now_ns):
            return False
        if effect.restored is None:
            self._process.answers.append(SinkOpened(effect.channel, store.open(self._incarnation)))
            return True
        staged = self._world.staged[effect.channel]
        staged.open(self._incarnation)
        if staged.commit(effect.restored, self._incarnation):
            return False
        state = staged.discard(effect.restored, self._incarnation)
        self._process.answers.append(SinkOpened(effect.channel, state))
        return True

    def _stage_rows(self, effect: StageRows) -> bool:
        self._world.staged[effect.channel].stage(effect.epoch, self._incarnation)
        return True

    def _commit_rows(self, effect: CommitRows) -> bool:
        if not self._world.stores[effect.channel].reachable(self._world.clock.now_ns):
            return False
        if self._world.staged[effect.channel].commit(effect.epoch, self._incarnation):
            return False
        self._process.answers.append(RowsCommitted(effect.channel, effect.epoch))
        return True

    def _write_bundle(self, effect: WriteBundle) -> bool:
        store = self._world.stores[effect.channel]
        if effect.channel in self._world.staged:
            self._world.staged[effect.channel].write(effect.bundle)
            return True
        if not store.reachable(self._world.clock.now_ns):
            return False
        store.write(effect.bundle)
        self._world.observer.wrote(store, effect.channel, effect.bundle)
        return True

    def _withdraw(self, effect: WithdrawRows) -> bool:
        store = self._world.stores[effect.channel]
        if not store.reachable(self._world.clock.now_ns):
            return False
        state = store.withdraw(effect.mark, self._incarnation)
        self._process.answers.append(SinkOpened(effect.channel, state))
        return True

    def _truncate_sink(self, effect: TruncateSink) -> bool:
        store = self._world.stores[effect.channel]
        if not store.reachable(self._world.clock.now_ns):
            return False
        store.truncate(effect.epoch, self._incarnation)
        return True

    @property
    def _incarnation(self) -> int:
        return self._process.membership.incarnation

    def _read_source(self, effect: ReadSource) -> bool:
        self.read(effect.channel, effect.position, effect.count_max)
        return True

    def read(self, channel: int, position: int, count_max: int) -> None:
        partition, now_ns = self._world.partitions[channel], self._world.clock.now_ns
        self._world.began_ns = self._world.began_ns or now_ns
        ready = min(partition.available(now_ns, self._world.began_ns) - position, count_max)
        if ready <= 0 and position < partition.records:
            self.reads[channel] = (position, count_max)
            return
        self.reads.pop(channel, None)
        count = self._world.rng.randint(1, ready) if ready > 0 else 0
        self.first_record_ns = self.first_record_ns or now_ns
        task = self._process.task
        if position < partition.low and task is not None and self._world.observer.superseded(task):
            raise Unavailable(f"position {position} is gone: the life after this one has completed a checkpoint")
        records = partition.read(position, count)
        self._process.answers.append(
            SourceRead(channel, position, records, now_ns, position + count == partition.records)
        )

    def reads_due_ns(self) -> int:
        """Returns when a partition that is waited for has something."""
        began_ns = self._world.began_ns
        return min(self._world.partitions[c].ready_ns(position, began_ns) for c, (position, _) in self.reads.items())

    def _source_completed(self, effect: SourceCompleted) -> bool:
        self._world.partitions[effect.channel].completed(effect.position)
        return True

    # -- the disk ------------------------------------------------------------------------------------

    def _soon(self, action: Callable[[], None]) -> None:
        slow = self._world.clock.now_ns < self._world.disk.slow_until_ns
        self._world.clock.after(self._world.rng.randint(20_000, 200 * MS if slow else 3 * MS), action)

    def _answer(self, task: TaskProtocol | None, event: Event) -> None:
        if self._process.living and self._process.task is task:
            self._process.from_disk.append(event)
            self._process.poke(0)

    def _write_snapshot(self, effect: WriteSnapshot) -> bool:
        task, tried = self._process.task, 0
        name = f"checkpoints/{self._process.membership.name}/e{effect.epoch:08d}-i{self._incarnation}.snap"

        def write() -> None:
            nonlocal tried
            if not self._process.living:
                return  # torn: what was written aside is never looked at
            try:
                file = self._world.disk.write(name, effect.parts, self._world.clock.now_ns)
            except Unavailable as problem:
                tried += 1
                if tried == SNAPSHOT_TRIES_MAX:
                    self._process.fail(problem)
                else:
                    self._world.clock.after(200 * MS * tried, write)
                return
            self._answer(task, SnapshotWritten(effect.epoch, file))

        self._soon(write)
        return True

    def _keep_stable(self, effect: StableEffect) -> bool:
        self._stable.ask(effect)
        return True

    def _snapshot_ready(self, effect: SnapshotReady) -> bool:
        files = [list(file) for file in effect.files]
        self._process.report(Reported("snapshot", {"epoch": effect.epoch, "files": files}))
        return True

    def _spill(self, effect: SpillSegment) -> bool:
        task = self._process.task
        payloads = {entry.first: bytes(entry.payload or b"") for entry in effect.entries}
        first, count = effect.entries[0].first, effect.entries[-1].next - effect.entries[0].first

        def write() -> None:
            if self._process.task is not task:
                return
            if self._world.clock.now_ns < self._world.disk.full_until_ns:
                self._answer(task, SegmentFailed(effect.channel, effect.segment))
                return
            self.segments[effect.segment] = payloads
            self._answer(task, SegmentWritten(effect.channel, effect.segment, first, count))

        self._soon(write)
        return True

    def _load_segment(self, effect: ReadSegment) -> bool:
        """Read what is there now: one thread performs what a task asks of its disk, in order."""
        task, payloads = self._process.task, self.segments.get(effect.segment)
        if payloads is None:
            raise Violated(f"spill: segment {effect.segment} of {self._process.slot} is read after it was removed")

        def answer() -> None:
            if self._process.task is not task or not self._process.living:
                return
            if self.rotten:
                self._process.fail(Unavailable(f"segment {effect.segment} does not match its digest"))
                return
            self._answer(task, SegmentRead(effect.channel, effect.segment, payloads))

        self._soon(answer)
        return True

    def _remove_segments(self, effect: RemoveSegments) -> bool:
        for segment in effect.segments:
            self.segments.pop(segment, None)
        return True

    def _ask(self, effect: SendRequests) -> bool:
        for request in effect.requests:
            self._put(self._process.task, request, 0)
        return True

    def _put(self, task: TaskProtocol | None, request: Request, failures: int) -> None:
        """Puts a request, which arrives even if its process dies; the outside answers at any time, sometimes twice."""
        world, rng = self._world, self._world.rng

        def arrive() -> None:
            body = world.service.put(request.body, failures)
            if body is None:
                world.clock.after(rng.randint(1, 30) * MS, again)
                return
            answer = ResponseReceived(request.operator, request.number, body)
            for _ in range(rng.choice((1, 1, 1, 2))):
                world.clock.after(rng.randint(1, 40) * MS, lambda: self._answer(task, answer))

        def again() -> None:
            if self._process.living and self._process.task is task:
                self._put(task, request, failures + 1)

        world.clock.after(rng.randint(20_000, 3 * MS), arrive)

    def _phase(self, effect: Phase) -> bool:
        facts = {"phase": effect.name, "at_ns": self._world.clock.now_ns, "detail": effect.detail}
        self._process.report(Reported("phase", facts))
        return True

    def _report_finding(self, effect: OrphanReport) -> bool:
        finding = effect.finding
        orphan = None if finding.orphan is None else list(finding.orphan)
        facts = {"settled": finding.settled, "orphan": orphan, "stands": [list(each) for each in finding.stands]}
        self._process.report(Reported("finding", {"number": effect.number, "finding": facts}))
        return True


_PERFORMERS: dict[type[Effect], Callable[[Shell, Any], bool]] = {
    SendRequests: Shell._ask,
    Send: Shell._send,
    Reply: Shell._reply,
    OpenSink: Shell._open_sink,
    WriteBundle: Shell._write_bundle,
    WithdrawRows: Shell._withdraw,
    StageRows: Shell._stage_rows,
    CommitRows: Shell._commit_rows,
    TruncateSink: Shell._truncate_sink,
    ReadSource: Shell._read_source,
    SourceCompleted: Shell._source_completed,
    WriteSnapshot: Shell._write_snapshot,
    SnapshotReady: Shell._snapshot_ready,
    ReadStable: Shell._keep_stable,
    BeginStable: Shell._keep_stable,
    AppendStable: Shell._keep_stable,
    TruncateStable: Shell._keep_stable,
    SpillSegment: Shell._spill,
    ReadSegment: Shell._load_segment,
    RemoveSegments: Shell._remove_segments,
    Phase: Shell._phase,
    OrphanReport: Shell._report_finding,
}
"""Each performs one effect; false if it must be retried before anything else (a store is unavailable)."""
