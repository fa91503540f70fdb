"""The body of the loop around one task: feeds events, performs effects in order, requests the next turn.

Everything that touches the world for a running task is called from here, in the order the core gave (D4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

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
    StateReply,
    TruncateSink,
    TruncateStable,
    WithdrawRows,
    WriteBundle,
    WriteRecording,
    WriteSnapshot,
)
from causal.errors import DeterminantsLost, Unavailable, invariant
from causal.events import Event, FrameReceived, RowsCommitted, SinkOpened, SourceRead, Started, Turn
from causal.ports import SinkStore, StagingStore, WithdrawingStore
from causal.shell.clock import monotonic_ns
from causal.shell.disk import Disk
from causal.shell.latency import Latencies
from causal.shell.outage import StoreCalls, StoreUnavailable
from causal.shell.request_pool import RequestPool
from causal.shell.transport import Transport
from causal.task.effect_queue import EffectQueue
from causal.task.task import TaskProtocol

TURNS_PER_POLL = 8
WAIT_MS_MAX = 1000


class Reader(Protocol):
    """The reader of a source's partition, as the driver uses it (see `operators.sources.source.PartitionReader`)."""

    def read(self, position: int, count_max: int) -> Any: ...

    def ready_in_s(self, position: int) -> float: ...

    def completed(self, position: int) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class CountingReader(Protocol):
    """A reader that has counters of its own."""

    def counters(self) -> dict[str, int | float]:
        """Returns values by name."""
        ...


@dataclass(slots=True)
class _Pending:
    """A read that has returned nothing yet."""

    position: int
    count_max: int
    again_at_ns: int


class TaskDriver:
    """Runs one `TaskProtocol` on real sockets, disk, stores and readers.

    Args:
        report: called with (kind, facts) for the control plane: `phase`, `snapshot`, `finding`; and with what
            `StoreCalls` reports.
        patience_s: how long a store may be unavailable.
        turning: called with the time as each turn begins.

    While a store is unavailable the task takes no turn, and effects wait in their order behind the one that failed; it
    still answers its neighbours, which may be recovering.
    """

    def __init__(
        self,
        task: TaskProtocol,
        run: str,
        transport: Transport,
        disk: Disk,
        stores: Mapping[int, SinkStore],
        readers: Mapping[int, Reader],
        report: Callable[[str, dict[str, Any]], None],
        asking: RequestPool | None = None,
        patience_s: float = 60.0,
        turning: Callable[[int], None] = lambda now_ns: None,
    ) -> None:
        self.task = task
        self._run = run
        self._transport = transport
        self._disk = disk
        self._stores = stores
        self._readers = readers
        self._report = report
        self._asking = RequestPool({}) if asking is None else asking
        self._abandoned = ""
        self._store_calls = StoreCalls(task.name, patience_s, report)
        self._turning = turning
        self._effects = EffectQueue(self._performed)
        self._pending: dict[int, _Pending] = {}
        self._answers: list[Event] = []
        self.latencies = Latencies()
        self.checkpoint_ms = 0.0
        """The duration of the last snapshot, from the request to the disk to its acknowledgement."""
        self._snapshot_began_ns = 0
        self._turn_ns = 0
        self._built_ns = monotonic_ns()
        self.first_record_ns = 0
        self.last_output_ns = 0

    def start(self) -> None:
        self.feed(Started())

    def feed(self, event: Event) -> None:
        """Passes one event to the task, performs its effects, and passes on their answers."""
        self._effects.perform(self.task.handle(event, monotonic_ns()))
        self._hand_over()

    def _hand_over(self) -> None:
        """Passes the answers to its effects to the task."""
        while self._answers:
            answer = self._answers.pop(0)
            self._effects.perform(self.task.handle(answer, monotonic_ns()))

    def work(self, ready: dict[Any, int]) -> None:
        """Performs one round: frames that have arrived, answers of the disk, due reads, then some turns."""
        for link, parts in self._transport.receive(ready):
            self.feed(FrameReceived(link, parts))
        if self._disk.wake in ready:
            for answer in self._disk.answers():
                self.feed(answer)
        if self._asking.wake in ready or self._asking_is_due():
            for answered in self._asking.answers():
                self.feed(answered)
            self._report_abandoned()
        if self._pending:
            self._read_again()
        if self._effects and not self._tried_again():
            return
        for _ in range(TURNS_PER_POLL):
            began_ns = monotonic_ns()
            self._turning(began_ns)
            self.feed(Turn(self._turn_ns))
            self._turn_ns = monotonic_ns() - began_ns
            if self.task.idle or self.task.encoding:
                return

    def wait_ms(self) -> int:
        """Returns how long the loop may sleep."""
        if self._effects:
            return _ms_until(self._store_calls.again_ns, monotonic_ns())
        if not self.task.idle:
            return 0
        now_ns = monotonic_ns()
        due = [pending.again_at_ns for pending in self._pending.values()]
        due += [at for at in (self.task.next_deadline_ns(now_ns), self._asking.next_ns()) if at is not None]
        return _ms_until(min(due), now_ns) if due else WAIT_MS_MAX

    def _report_abandoned(self) -> None:
        """Logs once that the calls that may run are all abandoned, and once that they are not any more."""
        stuck = self._asking.abandoned
        if stuck != self._abandoned:
            self._abandoned = stuck
            line = stuck or "calls that were out of time have returned"
            self._report("waiting", {"line": f"{self.task.name}: {line}"})

    def _asking_is_due(self) -> bool:
        next_ns = self._asking.next_ns()
        return next_ns is not None and next_ns <= monotonic_ns()

    def counters(self) -> dict[str, Any]:
        """Returns the task's counters and those that only the shell can know."""
        return {
            **self.task.counters(),
            "latency_ms_buckets": dict(self.latencies.buckets_ms),
            "latency_ms_max": self.latencies.max_ms,
            "checkpoint_ms": self.checkpoint_ms,
            "snapshot_bytes": self._disk.snapshot_bytes,
            "refused_rows": sum(getattr(store, "refused", 0) for store in self._stores.values()),
            "undeliverable_frames": self._transport.undeliverable,
            **self._staged_counters(),
            **self._source_counters(),
            **self._asking.counters(),
        }

    def _staged_counters(self) -> dict[str, int]:
        """Returns the rows that wait for their checkpoint, if stores stage rows."""
        staged = [store.staged() for store in self._stores.values() if isinstance(store, StagingStore)]
        return {"staged_rows": sum(r for r, _ in staged), "staged_bytes": sum(b for _, b in staged)} if staged else {}

    def _source_counters(self) -> dict[str, int | float]:
        """Returns what readers count of their sources beside records."""
        figures = [reader.counters() for reader in self._readers.values() if isinstance(reader, CountingReader)]
        return {name: value for counters in figures for name, value in counters.items()}

    @property
    def reported_state(self) -> str:
        """The task's state for a heartbeat: an end only after its store has all rows, and that was reported."""
        return self._effects.reported_state(self.task.reported_state, self.task.recovery.state.value)

    @property
    def waiting(self) -> tuple[int, str] | None:
        """The time since which a store is waited for, and why; None if none is."""
        return self._store_calls.waiting

    @property
    def store_call_ns(self) -> int:
        """The time at which the current call of a store began; 0 without one.  Another thread may read it."""
        return self._store_calls.call_ns

    def overdue(self) -> str | None:
        """Returns why the process must end, if a store does not answer at all.  Another thread may call it."""
        return self._store_calls.overdue()

    def close(self) -> None:
        for store in self._stores.values():
            store.close()
        for reader in self._readers.values():
            reader.close()
        self._disk.close()
        self._asking.close()

    # -- effects -------------------------------------------------------------------------------------

    def _performed(self, effect: Effect) -> bool:
        try:
            _PERFORMERS[type(effect)](self, effect)
        except StoreUnavailable:
            return False
        return True

    def _tried_again(self) -> bool:
        """Retries the effects that wait for a store, if that is due; returns whether none waits any more."""
        if monotonic_ns() >= self._store_calls.again_ns:
            self._effects.retry()
            self._hand_over()
        return not self._effects

    def _send(self, effect: Send) -> None:
        self._transport.send(effect.target, effect.parts)

    def _reply(self, effect: Reply) -> None:
        self._transport.reply(effect.link, effect.parts)

    def _open_sink(self, effect: OpenSink) -> None:
        store = self._stores[effect.channel]
        state = self._store_calls.make(lambda: store.open(self.task.name, self._run, self.task.incarnation))
        restored = effect.restored
        if restored is not None:
            staged = self._staged(effect.channel)
            self._commit(staged, restored)
            state = self._store_calls.make(lambda: staged.discard(restored))
        self._answers.append(SinkOpened(effect.channel, state))

    def _staged(self, channel: int) -> StagingStore:
        store = self._stores[channel]
        invariant(isinstance(store, StagingStore), "rows are staged in a store that can", task=self.task.name)
        return store  # type: ignore[return-value]

    def _stage_rows(self, effect: StageRows) -> None:
        store = self._staged(effect.channel)
        self._store_calls.make(lambda: store.stage(effect.epoch))

    def _commit_rows(self, effect: CommitRows) -> None:
        self._commit(self._staged(effect.channel), effect.epoch)
        now_ns = monotonic_ns()
        self.latencies.committed(effect.channel, effect.epoch, now_ns)
        self.last_output_ns = now_ns
        self._answers.append(RowsCommitted(effect.channel, effect.epoch))

    def _commit(self, store: StagingStore, epoch: int) -> None:
        while self._store_calls.make(lambda: store.commit(epoch)):
            self._report("waiting", {})  # a heartbeat between two steps

    def _write_bundle(self, effect: WriteBundle) -> None:
        store = self._stores[effect.channel]
        self._store_calls.make(lambda: store.write(effect.bundle))
        if not effect.bundle.count or not effect.origins:  # requests are no output
            return
        if isinstance(store, StagingStore):
            self.latencies.staged(effect.channel, effect.bundle.epoch, effect.origins)
            return
        self.last_output_ns = now_ns = monotonic_ns()
        self.latencies.seen(effect.origins, now_ns)

    def _truncate_sink(self, effect: TruncateSink) -> None:
        self._store_calls.make(lambda: self._stores[effect.channel].truncate(effect.epoch))

    def _withdraw_rows(self, effect: WithdrawRows) -> None:
        store = self._stores[effect.channel]
        if not isinstance(store, WithdrawingStore):
            raise DeterminantsLost(
                f"{self.task.name}: visible rows depend on determinants that are lost, and its sink cannot take rows "
                "back; restore what it wrote to and start a new job, with --sharing-depth full"
            )
        state = self._store_calls.make(lambda: store.withdraw(effect.mark))
        self._answers.append(SinkOpened(effect.channel, state))

    def _report_orphan(self, effect: OrphanReport) -> None:
        finding = effect.finding
        orphan = None if finding.orphan is None else list(finding.orphan)
        answer = {"settled": finding.settled, "orphan": orphan, "stands": [list(each) for each in finding.stands]}
        self._report("finding", {"number": effect.number, "finding": answer})

    def _read_source(self, effect: ReadSource) -> None:
        self._read(effect.channel, effect.position, effect.count_max)

    def _read(self, channel: int, position: int, count_max: int) -> None:
        reader = self._readers[channel]
        try:
            batch = reader.read(position, count_max)
        except Unavailable:
            batch = None
        if batch is None:
            again_ns = monotonic_ns() + max(1_000_000, int(reader.ready_in_s(position) * 1e9))
            self._pending[channel] = _Pending(position, count_max, again_ns)
            return
        self._pending.pop(channel, None)
        if batch.records and not self.first_record_ns:
            # A record that was due before this process started counts from the time at which it is read.
            self.first_record_ns = batch.origin_ns if batch.origin_ns >= self._built_ns else monotonic_ns()
        self._answers.append(SourceRead(channel, position, batch.records, batch.origin_ns, batch.ended))

    def _read_again(self) -> None:
        now_ns = monotonic_ns()
        for channel, pending in list(self._pending.items()):
            if pending.again_at_ns <= now_ns:
                self._read(channel, pending.position, pending.count_max)
        self._hand_over()

    def _source_completed(self, effect: SourceCompleted) -> None:
        self._readers[effect.channel].completed(effect.position)

    def _write_snapshot(self, effect: WriteSnapshot) -> None:
        self._snapshot_began_ns = monotonic_ns()
        self._disk.ask(effect)

    def _ask_disk(self, effect: Effect) -> None:
        self._disk.ask(effect)

    def _ask(self, effect: SendRequests) -> None:
        self._asking.ask(effect.requests)

    def _snapshot_ready(self, effect: SnapshotReady) -> None:
        self.checkpoint_ms = (monotonic_ns() - self._snapshot_began_ns) / 1e6
        self._report("snapshot", {"epoch": effect.epoch, "files": [list(file) for file in effect.files]})

    def _inspected(self, effect: StateReply) -> None:
        self._report("inspected", {"request": effect.request, "facts": effect.facts})

    def _phase(self, effect: Phase) -> None:
        self._report("phase", {"phase": effect.name, "at_ns": monotonic_ns(), "detail": effect.detail})


_PERFORMERS: dict[type, Callable[[TaskDriver, Any], None]] = {
    Send: TaskDriver._send,
    Reply: TaskDriver._reply,
    OpenSink: TaskDriver._open_sink,
    WriteBundle: TaskDriver._write_bundle,
    StageRows: TaskDriver._stage_rows,
    CommitRows: TaskDriver._commit_rows,
    TruncateSink: TaskDriver._truncate_sink,
    WithdrawRows: TaskDriver._withdraw_rows,
    OrphanReport: TaskDriver._report_orphan,
    ReadSource: TaskDriver._read_source,
    SourceCompleted: TaskDriver._source_completed,
    WriteSnapshot: TaskDriver._write_snapshot,
    WriteRecording: TaskDriver._ask_disk,
    ReadStable: TaskDriver._ask_disk,
    BeginStable: TaskDriver._ask_disk,
    AppendStable: TaskDriver._ask_disk,
    TruncateStable: TaskDriver._ask_disk,
    SpillSegment: TaskDriver._ask_disk,
    ReadSegment: TaskDriver._ask_disk,
    RemoveSegments: TaskDriver._ask_disk,
    SnapshotReady: TaskDriver._snapshot_ready,
    SendRequests: TaskDriver._ask,
    Phase: TaskDriver._phase,
    StateReply: TaskDriver._inspected,
}


def _ms_until(at_ns: int, now_ns: int) -> int:
    """Returns whole milliseconds, rounded up, because after an early wake-up nothing is due."""
    return max(0, min(WAIT_MS_MAX, -((now_ns - at_ns) // 1_000_000)))
