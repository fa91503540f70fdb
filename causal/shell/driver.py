"""The loop's body around one task: feed events, perform effects in order, ask for the next turn.

Everything that touches the world for a running task is called from here, in the order the core gave (D4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from causal.effect_queue import EffectQueue
from causal.effects import (
    AppendStable,
    Ask,
    BeginStable,
    CommitRows,
    Effect,
    Found,
    Inspected,
    OpenSink,
    Phase,
    ReadSegment,
    ReadSource,
    ReadStable,
    RemoveSegments,
    Reply,
    Send,
    SnapshotReady,
    SourceCompleted,
    SpillSegment,
    StageRows,
    TruncateSink,
    TruncateStable,
    WithdrawRows,
    WriteBundle,
    WriteRecording,
    WriteSnapshot,
)
from causal.errors import Lost, Unavailable, invariant
from causal.events import Event, FrameReceived, RowsCommitted, SinkOpened, SourceRead, Started, Turn
from causal.ports import SinkStore, StagingStore, WithdrawingStore
from causal.shell.asking import Asking
from causal.shell.clock import monotonic_ns
from causal.shell.disk import Disk
from causal.shell.latency import Latencies
from causal.shell.outage import StoreAway, StoreCalls
from causal.shell.transport import Transport
from causal.task import TaskProtocol

TURNS_PER_POLL = 8
WAIT_MS_MAX = 1000


class Reader(Protocol):
    """What the driver asks of a source's partition (see `operators.sources.base.PartitionReader`)."""

    def read(self, position: int, count_max: int) -> Any: ...

    def ready_in_s(self, position: int) -> float: ...

    def completed(self, position: int) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class CountingReader(Protocol):
    """A reader that has figures of its own."""

    def counters(self) -> dict[str, int | float]:
        """Levels by name."""
        ...


@dataclass(slots=True)
class _Pending:
    """A read that found nothing yet."""

    position: int
    count_max: int
    again_at_ns: int


class TaskDriver:
    """Runs one `TaskProtocol` on real sockets, disk, stores and readers.

    Args:
        report: called with (kind, facts) for the control plane: `phase`, `snapshot`, `finding`; and with what
            `StoreCalls` reports.
        patience_s: how long a store may be away.
        turning: called with the time as each turn begins.

    While a store is away the task takes no turn, and effects wait in their order behind the one that failed; it goes
    on to answer its neighbours, who may be recovering.
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
        asking: Asking | None = None,
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
        self._asking = Asking({}) if asking is None else asking
        self._abandoned = ""
        self._store_calls = StoreCalls(task.name, patience_s, report)
        self._turning = turning
        self._effects = EffectQueue(self._performed)
        self._pending: dict[int, _Pending] = {}
        self._answers: list[Event] = []
        self.latencies = Latencies()
        self.checkpoint_ms = 0.0
        """How long the last snapshot took from the disk's first byte to its acknowledgement."""
        self._snapshot_began_ns = 0
        self._turn_ns = 0
        self._built_ns = monotonic_ns()
        self.first_record_ns = 0
        self.last_output_ns = 0

    def start(self) -> None:
        self.feed(Started())

    def feed(self, event: Event) -> None:
        """Hand one event to the task and perform what it asks, and what that answers."""
        self._effects.perform(self.task.handle(event, monotonic_ns()))
        self._hand_over()

    def _hand_over(self) -> None:
        """Give the task what its effects were answered."""
        while self._answers:
            answer = self._answers.pop(0)
            self._effects.perform(self.task.handle(answer, monotonic_ns()))

    def work(self, ready: dict[Any, int]) -> None:
        """One round: what has come in, what the disk says, due reads, then some turns."""
        for link, parts in self._transport.receive(ready):
            self.feed(FrameReceived(link, parts))
        if self._disk.wake in ready:
            for answer in self._disk.answers():
                self.feed(answer)
        if self._asking.wake in ready or self._asking_is_due():
            for answered in self._asking.answers():
                self.feed(answered)
            self._tell_of_calls()
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
        """How long the loop may sleep."""
        if self._effects:
            return _ms_until(self._store_calls.again_ns, monotonic_ns())
        if not self.task.idle:
            return 0
        now_ns = monotonic_ns()
        due = [pending.again_at_ns for pending in self._pending.values()]
        due += [at for at in (self.task.next_deadline_ns(now_ns), self._asking.next_ns()) if at is not None]
        return _ms_until(min(due), now_ns) if due else WAIT_MS_MAX

    def _tell_of_calls(self) -> None:
        """Log it once when the threads of calls are all abandoned, and once when they are not any more."""
        stuck = self._asking.abandoned
        if stuck != self._abandoned:
            self._abandoned = stuck
            line = stuck or "calls that were out of time have returned"
            self._report("waiting", {"line": f"{self.task.name}: {line}"})

    def _asking_is_due(self) -> bool:
        next_ns = self._asking.next_ns()
        return next_ns is not None and next_ns <= monotonic_ns()

    def counters(self) -> dict[str, Any]:
        """The task's figures and those that only the shell can know."""
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
        """What waits for its checkpoint, under a guarantee where something does."""
        told = [store.staged() for store in self._stores.values() if isinstance(store, StagingStore)]
        return {"staged_rows": sum(r for r, _ in told), "staged_bytes": sum(b for _, b in told)} if told else {}

    def _source_counters(self) -> dict[str, int | float]:
        """What readers know of their sources beside records."""
        told = [reader.counters() for reader in self._readers.values() if isinstance(reader, CountingReader)]
        return {name: value for counters in told for name, value in counters.items()}

    @property
    def word(self) -> str:
        """The task's, for a beat; that it has come to an end only once its store has all rows, and that was told."""
        return self._effects.word(self.task.word, self.task.recovery.state.value)

    @property
    def waiting(self) -> tuple[int, str] | None:
        """Since when a store is waited for, and why; None when it is not."""
        return self._store_calls.waiting

    @property
    def store_call_ns(self) -> int:
        """When the call of a store that is under way began; 0 when none is.  Another thread may ask."""
        return self._store_calls.call_ns

    def overdue(self) -> str | None:
        """Why the process must end, because a store does not answer at all.  Another thread may ask."""
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
        except StoreAway:
            return False
        return True

    def _tried_again(self) -> bool:
        """Whether nothing waits for a store any more, which is tried when that is due."""
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
        held = self._store_calls.make(lambda: store.open(self.task.name, self._run, self.task.incarnation))
        restored = effect.restored
        if restored is not None:
            staged = self._staged(effect.channel)
            self._commit(staged, restored)
            held = self._store_calls.make(lambda: staged.discard(restored))
        self._answers.append(SinkOpened(effect.channel, held))

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
            self._report("waiting", {})  # it beats between two steps

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
            raise Lost(
                f"{self.task.name}: visible rows depend on determinants that are lost, and its sink cannot take rows "
                "back; restore what it wrote to and start the job anew, with --sharing-depth full"
            )
        held = self._store_calls.make(lambda: store.withdraw(effect.mark))
        self._answers.append(SinkOpened(effect.channel, held))

    def _found(self, effect: Found) -> None:
        finding = effect.finding
        orphan = None if finding.orphan is None else list(finding.orphan)
        told = {"settled": finding.settled, "orphan": orphan, "stands": [list(each) for each in finding.stands]}
        self._report("finding", {"number": effect.number, "finding": told})

    def _read_source(self, effect: ReadSource) -> None:
        self._read(effect.channel, effect.position, effect.count_max)

    def _read(self, channel: int, position: int, count_max: int) -> None:
        reader = self._readers[channel]
        try:
            told = reader.read(position, count_max)
        except Unavailable:
            told = None
        if told is None:
            again_ns = monotonic_ns() + max(1_000_000, int(reader.ready_in_s(position) * 1e9))
            self._pending[channel] = _Pending(position, count_max, again_ns)
            return
        self._pending.pop(channel, None)
        if told.records and not self.first_record_ns:
            # What was due before this process, in an earlier life of the job, enters this life when it is read.
            self.first_record_ns = told.origin_ns if told.origin_ns >= self._built_ns else monotonic_ns()
        self._answers.append(SourceRead(channel, position, told.records, told.origin_ns, told.ended))

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

    def _ask(self, effect: Ask) -> None:
        self._asking.ask(effect.requests)

    def _snapshot_ready(self, effect: SnapshotReady) -> None:
        self.checkpoint_ms = (monotonic_ns() - self._snapshot_began_ns) / 1e6
        self._report("snapshot", {"epoch": effect.epoch, "files": [list(file) for file in effect.files]})

    def _inspected(self, effect: Inspected) -> None:
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
    Found: TaskDriver._found,
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
    Ask: TaskDriver._ask,
    Phase: TaskDriver._phase,
    Inspected: TaskDriver._inspected,
}


def _ms_until(at_ns: int, now_ns: int) -> int:
    """Whole milliseconds, rounded up: who wakes up early finds nothing due."""
    return max(0, min(WAIT_MS_MAX, -((now_ns - at_ns) // 1_000_000)))
