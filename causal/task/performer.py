"""Performs the effects of one task, in order, on its peers, which are everything outside the task.

A worker's peers are sockets, a disk with its own thread, stores and readers (`causal.shell.driver`). In the simulator
and in tests, the peers are in memory. All of them run this code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from causal.effects import (
    AppendStable,
    BeginStable,
    CommitRows,
    Effect,
    MergeSnapshots,
    OpenSink,
    OrphanReport,
    Phase,
    ReadSegment,
    ReadSource,
    ReadStable,
    RemoveSegments,
    Reply,
    ReportSnapshot,
    Send,
    SendRequests,
    SourceCompleted,
    SpillSegment,
    StageRows,
    StateReply,
    TruncateSink,
    TruncateStable,
    WithdrawRows,
    WriteBundle,
    WriteEpochLog,
    WriteRecording,
    WriteSnapshot,
)
from causal.errors import DeterminantsLost, Unavailable, invariant
from causal.events import Event, RowsCommitted, SinkOpened, SourceRead
from causal.ports import LastingStore, Request, SinkStore, StagingStore, WithdrawingStore
from causal.task.latency import Latencies
from causal.task.reading import Gathering
from causal.task.task import TaskProtocol

T = TypeVar("T")

_AT_ONCE = frozenset((Send, Reply, Phase, StateReply, OrphanReport))
"""The effects performed even while a store is unavailable, because neighbours may be recovering or need an answer."""
ENDS = frozenset(("staged", "finished"))
"""The phases, and states in heartbeats, that report that the store has accepted every row."""

DiskEffect = (
    WriteSnapshot
    | MergeSnapshots
    | WriteRecording
    | WriteEpochLog
    | ReadStable
    | BeginStable
    | AppendStable
    | TruncateStable
    | SpillSegment
    | ReadSegment
    | RemoveSegments
)
"""The effects that a disk performs, in the order in which they are requested."""


class StoreUnavailable(Unavailable):
    """The error for a failed call that must be retried later; the effects that follow it wait."""


class Network(Protocol):
    """The network links of one task: frames may be lost, but those that arrive are in the order of sending."""

    def send(self, target: int, parts: list[bytes]) -> None: ...

    def reply(self, link: bytes, parts: list[bytes]) -> None: ...


class Disk(Protocol):
    """The disk of one task, whose answers arrive later as events."""

    def ask(self, effect: DiskEffect) -> None: ...


class Reader(Protocol):
    """The reader of a source's partition (see `operators.source.PartitionReader`)."""

    def read(self, position: int, count_max: int) -> Any: ...

    def ready_in_s(self, position: int) -> float: ...

    def completed(self, position: int) -> None: ...

    def close(self) -> None: ...


class Requests(Protocol):
    """The outside world, whose answers to requests arrive later as events."""

    def ask(self, requests: Sequence[Request]) -> None: ...


class Calls(Protocol):
    """The policy by which stores are called."""

    def make(self, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`.

        Raises:
            StoreUnavailable: the call has to be retried later.
        """
        ...


@dataclass(frozen=True, slots=True)
class Peers:
    """The targets of one task's effects.

    Attributes:
        stores, readers: the stores and readers, by channel.
        report: called with (kind, facts) for the control plane: `phase`, `snapshot`, `finding`, `inspected`, and
            `waiting` between two steps of a long call.
        now_ns: a function that reads the monotonic clock.
    """

    network: Network
    disk: Disk
    stores: Mapping[int, SinkStore]
    readers: Mapping[int, Reader]
    requests: Requests
    calls: Calls
    report: Callable[[str, dict[str, Any]], None]
    now_ns: Callable[[], int]


@dataclass(frozen=True, slots=True)
class PendingRead:
    """A read that has not returned anything yet, or that is delayed until more elements are available."""

    position: int
    count_max: int
    again_at_ns: int


class EffectQueue:
    """The effects of one task that have not been performed yet.

    Args:
        perform: performs one effect; returns false if a store is unavailable, so that the effect has to be retried.
    """

    def __init__(self, perform: Callable[[Effect], bool]) -> None:
        self._try = perform
        self._waiting: deque[Effect] = deque()
        self._ends_performed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Return whether effects are waiting for a store."""
        return bool(self._waiting)

    def perform(self, effects: Iterable[Effect]) -> None:
        """Perform `effects` after the waiting effects, and queue any effect that cannot be performed now."""
        for effect in effects:
            if (self._waiting and not _at_once(effect)) or not self._try(effect):
                self._waiting.append(effect)
            elif isinstance(effect, Phase):
                self._ends_performed |= ENDS & {effect.name}

    def retry(self) -> None:
        """Retry the waiting effects, starting with the one that failed."""
        due, self._waiting = self._waiting, deque()
        self.perform(due)

    def reported_state(self, state: str, waiting_state: str) -> str:
        """Return the state for a heartbeat; an end is reported only after the store has accepted all rows.

        Args:
            state: the task's own state, which may already be an end although the last write is still queued.
            waiting_state: the state to report instead while the last write is queued.
        """
        return waiting_state if state in ENDS - self._ends_performed else state


def _at_once(effect: Effect) -> bool:
    """Return whether `effect` may overtake waiting effects, because it does not imply that all rows were accepted."""
    return type(effect) in _AT_ONCE and not (isinstance(effect, Phase) and effect.name in ENDS)


class Performer:
    """The performer of one task's effects.

    Args:
        handle: passes an event to the task and returns the resulting effects.

    While a store is unavailable, effects wait in order after the one that failed, except for the task's answers to its
    neighbours.

    Attributes:
        pending: the reads that have not returned anything yet, by channel.
        checkpoint_ms: the duration of the last snapshot, from the request to the disk until the disk's acknowledgement.
    """

    def __init__(self, task: TaskProtocol, run: str, peers: Peers, handle: Callable[[Event], Iterable[Effect]]) -> None:
        self.pending: dict[int, PendingRead] = {}
        self.latencies = Latencies()
        self.checkpoint_ms = 0.0
        self.first_record_ns = self.last_output_ns = 0
        self._task = task
        self._run = run
        self._peers = peers
        self._staging = {channel: store for channel, store in peers.stores.items() if isinstance(store, StagingStore)}
        self._handle = handle
        self._effects = EffectQueue(self._performed)
        self._gathering = {channel: Gathering(task.gather_ns) for channel in peers.readers}
        self._answers: deque[Event] = deque()
        self._began_ns = peers.now_ns()
        self._snapshot_began_ns = 0

    @property
    def waiting(self) -> bool:
        """Whether effects are waiting for a store."""
        return bool(self._effects)

    @property
    def reported_state(self) -> str:
        """The task's state for a heartbeat; an end requires that the store has all rows and the end was reported."""
        return self._effects.reported_state(self._task.reported_state, self._task.recovery.state.value)

    def feed(self, event: Event) -> None:
        """Pass one event to the task, perform the resulting effects, and pass their answers to the task."""
        self.perform(self._handle(event))

    def perform(self, effects: Iterable[Effect]) -> None:
        """Perform effects, and pass their answers to the task."""
        self._effects.perform(effects)
        self._hand_over()

    def retry(self) -> bool:
        """Retry the effects that are waiting for a store; return whether none are waiting any more."""
        self._effects.retry()
        self._hand_over()
        return not self._effects

    def read_again(self, due_ns: int) -> None:
        """Repeat the pending reads that are due by `due_ns`."""
        for channel, pending in sorted(self.pending.items()):
            if pending.again_at_ns <= due_ns:
                self._ask_reader(channel, pending.position, pending.count_max)
                self._hand_over()

    def _hand_over(self) -> None:
        while self._answers:
            self._effects.perform(self._handle(self._answers.popleft()))

    def _performed(self, effect: Effect) -> bool:
        try:
            _PERFORMERS[type(effect)](self, effect)
        except StoreUnavailable:
            return False
        return True

    # -- neighbours and supervisor ---------------------------------------------------------------------

    def _send(self, effect: Send) -> None:
        self._peers.network.send(effect.target, effect.parts)

    def _reply(self, effect: Reply) -> None:
        self._peers.network.reply(effect.link, effect.parts)

    def _report_orphan(self, effect: OrphanReport) -> None:
        finding = effect.finding
        orphan = None if finding.orphan is None else list(finding.orphan)
        answer = {"settled": finding.settled, "orphan": orphan, "stands": [list(each) for each in finding.stands]}
        self._peers.report("finding", {"number": effect.number, "finding": answer})

    def _snapshot_ready(self, effect: ReportSnapshot) -> None:
        self.checkpoint_ms = (self._peers.now_ns() - self._snapshot_began_ns) / 1e6
        self._peers.report("snapshot", {"epoch": effect.epoch, "files": [list(file) for file in effect.files]})

    def _inspected(self, effect: StateReply) -> None:
        self._peers.report("inspected", {"request": effect.request, "facts": effect.facts})

    def _phase(self, effect: Phase) -> None:
        facts = {"phase": effect.name, "at_ns": self._peers.now_ns(), "detail": effect.detail}
        self._peers.report("phase", facts)

    # -- stores ----------------------------------------------------------------------------------------

    def _open_sink(self, effect: OpenSink) -> None:
        store, calls = self._peers.stores[effect.channel], self._peers.calls
        if effect.expected and isinstance(store, LastingStore):
            store.expect(effect.counted)
        account = self._task.channels.sinks[effect.channel].name
        state = calls.make(lambda: store.open(account, self._run, self._task.incarnation))
        restored = effect.restored
        if restored is not None:
            staged = self._staged(effect.channel)
            self._commit(staged, restored)
            state = calls.make(lambda: staged.discard(restored))
        self._answers.append(SinkOpened(effect.channel, state))

    def _staged(self, channel: int) -> StagingStore:
        invariant(channel in self._staging, "rows are staged in a store that can", task=self._task.name)
        return self._staging[channel]

    def _stage_rows(self, effect: StageRows) -> None:
        store = self._staged(effect.channel)
        self._peers.calls.make(lambda: store.stage(effect.epoch))

    def _commit_rows(self, effect: CommitRows) -> None:
        self._commit(self._staged(effect.channel), effect.epoch)
        self.last_output_ns = now_ns = self._peers.now_ns()
        self.latencies.committed(effect.channel, effect.epoch, now_ns)
        self._answers.append(RowsCommitted(effect.channel, effect.epoch))

    def _commit(self, store: StagingStore, epoch: int) -> None:
        while self._peers.calls.make(lambda: store.commit(epoch)):
            self._peers.report("waiting", {})  # lets the process send a heartbeat between two steps

    def _write_bundle(self, effect: WriteBundle) -> None:
        store = self._peers.stores[effect.channel]
        self._peers.calls.make(lambda: store.write(effect.bundle))
        if not effect.bundle.count or not effect.origins:  # requests do not count as output
            return
        if effect.channel in self._staging:
            self.latencies.staged(effect.channel, effect.bundle.epoch, effect.origins)
            return
        self.last_output_ns = now_ns = self._peers.now_ns()
        self.latencies.seen(effect.origins, now_ns)

    def _truncate_sink(self, effect: TruncateSink) -> None:
        self._peers.calls.make(lambda: self._peers.stores[effect.channel].truncate(effect.epoch))

    def _withdraw_rows(self, effect: WithdrawRows) -> None:
        store = self._peers.stores[effect.channel]
        if not isinstance(store, WithdrawingStore):
            raise DeterminantsLost(
                f"{self._task.name}: visible rows depend on lost determinants, and its sink cannot withdraw "
                "rows; restore the store and start a new job with --sharing-depth full"
            )
        state = self._peers.calls.make(lambda: store.withdraw(effect.mark))
        self._answers.append(SinkOpened(effect.channel, state))

    # -- sources, disk, outside world ------------------------------------------------------------------

    def _read_source(self, effect: ReadSource) -> None:
        self._read(effect.channel, effect.position, effect.count_max)

    def _read(self, channel: int, position: int, count_max: int) -> None:
        now_ns = self._peers.now_ns()
        again_ns = now_ns if self._task.cursor.replaying else self._gathering[channel].again_ns(now_ns)
        if again_ns > now_ns:
            self.pending[channel] = PendingRead(position, count_max, again_ns)
        else:
            self._ask_reader(channel, position, count_max)

    def _ask_reader(self, channel: int, position: int, count_max: int) -> None:
        reader, gathering, now_ns = self._peers.readers[channel], self._gathering[channel], self._peers.now_ns()
        try:
            batch = reader.read(position, count_max)
        except Unavailable:
            batch = None
        if batch is None:
            ready_ns = self._peers.now_ns() + max(1_000_000, int(reader.ready_in_s(position) * 1e9))
            self.pending[channel] = PendingRead(position, count_max, gathering.again_ns(ready_ns))
            return
        self.pending.pop(channel, None)
        gathering.took(len(batch.records), count_max, now_ns)
        if batch.records and not self.first_record_ns:
            # For a record that was due before this process started, use the time at which the record is read.
            since_ns = batch.origin_ns
            self.first_record_ns = since_ns if since_ns >= self._began_ns else self._peers.now_ns()
        self._answers.append(SourceRead(channel, position, batch.records, batch.origin_ns, batch.ended, batch.marks))

    def _source_completed(self, effect: SourceCompleted) -> None:
        self._peers.readers[effect.channel].completed(effect.position)

    def _write_snapshot(self, effect: WriteSnapshot) -> None:
        self._snapshot_began_ns = self._peers.now_ns()
        self._peers.disk.ask(effect)

    def _ask_disk(self, effect: DiskEffect) -> None:
        self._peers.disk.ask(effect)

    def _ask(self, effect: SendRequests) -> None:
        self._peers.requests.ask(effect.requests)


_PERFORMERS: dict[type[Effect], Callable[[Performer, Any], None]] = {
    Send: Performer._send,
    Reply: Performer._reply,
    OpenSink: Performer._open_sink,
    WriteBundle: Performer._write_bundle,
    StageRows: Performer._stage_rows,
    CommitRows: Performer._commit_rows,
    TruncateSink: Performer._truncate_sink,
    WithdrawRows: Performer._withdraw_rows,
    OrphanReport: Performer._report_orphan,
    ReadSource: Performer._read_source,
    SourceCompleted: Performer._source_completed,
    WriteSnapshot: Performer._write_snapshot,
    MergeSnapshots: Performer._ask_disk,
    WriteRecording: Performer._ask_disk,
    WriteEpochLog: Performer._ask_disk,
    ReadStable: Performer._ask_disk,
    BeginStable: Performer._ask_disk,
    AppendStable: Performer._ask_disk,
    TruncateStable: Performer._ask_disk,
    SpillSegment: Performer._ask_disk,
    ReadSegment: Performer._ask_disk,
    RemoveSegments: Performer._ask_disk,
    ReportSnapshot: Performer._snapshot_ready,
    SendRequests: Performer._ask,
    Phase: Performer._phase,
    StateReply: Performer._inspected,
}
