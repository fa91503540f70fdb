"""A task: a single-threaded state machine that accepts events and returns effects (D1).

In the live task, `Turn` picks the next event from the elements that have arrived, and logs it. In a replay, `Turn`
reads the next event from the log and waits until it can be performed (`causal.task.execution`). There is no second code
path for recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from causal.channels.ends import Channels
from causal.channels.exchange import Exchange
from causal.channels.sink_channel import depended
from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import (
    Effect,
    OpenSink,
    Phase,
    RemoveSegments,
    StateReply,
    TruncateSink,
    WithdrawRows,
    WriteEpochLog,
    WriteSnapshot,
)
from causal.errors import CausalError, PeerViolation, ReplayDivergence, invariant
from causal.events import (
    CheckpointCompleted,
    CheckpointRequested,
    Echoed,
    Event,
    FrameReceived,
    GreetAhead,
    HotStandbyDown,
    HotStandbyUp,
    InquiryResolved,
    JobEnded,
    OrphanQuery,
    PeerDown,
    PeerUp,
    Promoted,
    ResponseReceived,
    RowsCommitted,
    SegmentFailed,
    SegmentRead,
    SegmentWritten,
    Shadowed,
    SinkOpened,
    SnapshotsMerged,
    SnapshotWritten,
    SourceRead,
    StableFailed,
    StableRead,
    StableWritten,
    Started,
    StateQuery,
    Turn,
)
from causal.ids import TaskIndex
from causal.logs.dissemination import NO_KNOWLEDGE, Holdings, Knowledge
from causal.logs.rollback import NO_ROLLBACK, Extent, Rollback
from causal.ports import Chain, Environment
from causal.snapshot_files import SnapshotFile
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.echo import Echo
from causal.task.echo_states import EchoState
from causal.task.execution import Execution
from causal.task.flushing import Flushing
from causal.task.inquiry import Inquiry
from causal.task.reading import Reading
from causal.task.recovery import PERFORMS, Recovery, RecoveryStep, State
from causal.task.retention import Retention, Spilling, truncate
from causal.topology import Topology

_ABSENT = EchoState.ABSENT
_NOT_WHILE_ASKED = frozenset((FrameReceived, Turn))
"""The events that are dropped during an inquiry because they would change the answer to it; dropped frames are
requested again later."""


class TaskProtocol:
    """One incarnation of one task.

    Args:
        cut: the position of the task at the checkpoint from which `chain` was restored, or `Cut()` if there is none.
        files: the files of that checkpoint.
        report: called with one line for each new kind of fault, for the process log.
        rollback: the decisions about lost determinants since that checkpoint.
        retained: the determinants of the previous incarnation that remain valid, if it ran in this process.

    `handle` is the only method that handles events. It raises an error from `causal.errors` if the task cannot
    continue. The task is then in the state FAILED and must not handle any further event.
    """

    def __init__(
        self,
        topology: Topology,
        task: TaskIndex,
        incarnation: int,
        config: JobConfig,
        chain: Chain,
        live: Environment,
        cut: Cut,
        files: list[SnapshotFile],
        report: Callable[[str], None],
        rollback: Rollback = NO_ROLLBACK,
        retained: Knowledge = NO_KNOWLEDGE,
    ) -> None:
        self.name = topology.tasks[task].name
        self.incarnation = incarnation
        self.gather_ns = config.latency_target_ms * 1_000_000
        self._logging = config.guarantee == "causal"
        self._restored = cut.epoch if config.guarantee == "epoch" else None
        self._live = live
        self.recovery = Recovery(self.name)
        flushing = config.determinant_flush != "off"
        depth = config.sharing_depth if self._logging else 0
        self.holdings = Holdings(topology, task, depth, cut.epoch, flushing)
        self.flushing = Flushing(self.name, self.holdings)
        self.holdings.merge(retained.logs)
        self.holdings.depend(retained.depends)
        self.cursor = DeterminantCursor(self.holdings.own, cut.epoch, self.name, self._logging)
        self.cursor.last_ns = cut.last_ns
        self.channels = channels = Channels(topology, task, config, cut)
        for channel in channels.network:
            channel.marking = self._logging and self.holdings.partial
        self.inputs = channels.inputs
        self._partitions = {partition.id: partition for partition in channels.partitions}
        self.execution = Execution(
            self.recovery, config, chain, live, channels, self.holdings, self.cursor, cut, files, incarnation
        )
        self.execution.writing.rollback = rollback.number
        self._spilling = Spilling(channels, config)
        self.retention = Retention(channels, self.holdings, config, cut.epoch)
        self._reading = Reading(channels.partitions, self.cursor, self.execution.pace)
        self.exchange = Exchange(
            topology, task, incarnation, config, self.holdings,
            {c.id: c for c in channels.network}, channels.downstream, report,
        )  # fmt: skip
        output = topology.outputs(task)[0].id if topology.outputs(task) else 0
        self.echo = Echo(self.exchange.job, output, channels.network, self.holdings, report)
        self.echo.rollback = rollback.number
        self.withheld: list[WriteSnapshot] = []
        """The snapshots that a hot standby has encoded but not written."""
        self.withheld_logs: list[WriteEpochLog] = []
        """The logs that a hot standby has to write if it takes over before the checkpoint after them is complete."""
        self.inquiry = Inquiry(rollback)
        self.lost: list[Extent] = []
        """The extents of the own log beyond which other tasks depend on it; the task waits for a decision (D9)."""
        self.replayed_per_turn = 64
        """The number of events that a replay performs before it sends; sending costs more than a small event."""
        self.small_per_turn = 8
        """The number of small events that share a turn and its frames."""
        self.idle = False
        """Whether a `Turn` would have nothing to do until something arrives or a deadline passes."""
        self._first_output_reported = False
        self._failure: BaseException | None = None
        self._rows_visible: dict[int, int] = {}

    @property
    def finished(self) -> bool:
        """Whether all inputs have ended and all resulting output has been emitted."""
        return self.execution.schedule.finished

    @property
    def reported_finished(self) -> bool:
        return self.execution.writing.reported_finished

    @property
    def encoding(self) -> bool:
        """Whether a snapshot is being encoded; between its steps, the loop should handle messages that have arrived."""
        return self.execution.checkpointing.encoding

    @property
    def reported_state(self) -> str:
        """The state for a heartbeat: "staged" while the last rows wait for a checkpoint, and "finished" at the end."""
        if self.reported_finished:
            return "finished"
        return "staged" if self.execution.writing.staged else self.recovery.state.value

    # -- the handling of events --------------------------------------------------------------------

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        """Handle `event` at monotonic time `now_ns`; return the effects, to be performed in order (see `effects`)."""
        asked = self.inquiry.asked is not None
        self.idle = asked  # without an inquiry, the event may have created work for a Turn
        if asked and type(event) in _NOT_WHILE_ASKED:
            return []
        try:
            return _HANDLERS[type(event)](self, event, now_ns)
        except BaseException as problem:
            self._failure = problem
            self.recovery.step(RecoveryStep.FAILED, now_ns)
            raise

    def _started(self, event: Started, now_ns: int) -> list[Effect]:
        self.recovery.step(RecoveryStep.STARTED, now_ns)
        effects: list[Effect] = [
            OpenSink(channel, self._restored, sink.covered > 0, sink.counted)
            for channel, sink in self.channels.sinks.items()
        ]
        effects += [*self.withheld_logs, *self.withheld]
        self.withheld, self.withheld_logs = [], []
        return effects + self.exchange.pump(now_ns) + self._collected(now_ns)

    def unfinished_log(self) -> WriteEpochLog | None:
        """Return the log of the current epoch, because the process ends; None if there is none to keep."""
        state, failure = self.recovery.state, self._failure
        if failure is not None:
            state = State(self.recovery.story[-2][1])
        performs = state is State.RUNNING or (failure is not None and state is State.REPLAYING)
        if not performs or isinstance(failure, ReplayDivergence):  # its log does not fit its events
            return None
        shown = "" if failure is None else str(failure) if isinstance(failure, CausalError) else type(failure).__name__
        return self.execution.step.unfinished_log(shown)

    # -- a hot standby (0026) ------------------------------------------------------------------------

    def _hot_standby_up(self, event: HotStandbyUp, now_ns: int) -> list[Effect]:
        self.exchange.taken, self.exchange.echoed = self.echo.take, self.echo.answered
        self.echo.begin()
        return []

    def _hot_standby_down(self, event: HotStandbyDown, now_ns: int) -> list[Effect]:
        self.exchange.taken = self.exchange.echoed = None
        self.echo.end()
        return []

    def _shadowed(self, event: Shadowed, now_ns: int) -> list[Effect]:
        invariant(not self.channels.partitions, "only tasks with inputs of other tasks are shadowed", task=self.name)
        self.recovery.step(RecoveryStep.SHADOWED, now_ns)
        self.execution.checkpointing.withholding = True
        for sink in self.channels.sinks.values():
            sink.shadow()
        return []

    def _echoed(self, event: Echoed, now_ns: int) -> list[Effect]:
        """Accept the logs and elements that the task has echoed.

        Raises:
            PeerViolation: the echo does not continue the elements that this process has received.
        """
        self.holdings.merge(event.logs)
        self.holdings.depend(event.depends)
        for header, payload in event.frames:
            receiver = self.exchange.inputs.get(header.channel)
            if receiver is None or not receiver.accept(header, payload):
                raise PeerViolation(f"channel {header.channel}: the echo has a gap at position {header.position}")
        return []

    def _shadowed_turn(self, now_ns: int) -> list[Effect]:
        """Perform the events in the log, withhold encoded snapshots, and keep in-flight entries within their limits.

        All other effects are left to the task itself.
        """
        checkpointing, effects = self.execution.checkpointing, list[Effect]()
        grown = self.holdings.own.grown
        performed = not checkpointing.encodes_next and not self._spilling.over_bounds()
        performed = performed and self.execution.perform(effects, 1, self.replayed_per_turn, now_ns)
        if self.holdings.own.grown != grown:
            raise ReplayDivergence(self.name, "its hot standby asks for an answer that the task has not asked for")
        if not performed:
            effects += checkpointing.step(busy=False)
        checkpointing.encodes_next = performed and checkpointing.encoding
        self.idle = not performed and not checkpointing.encoding
        self.withheld += [each for each in effects if isinstance(each, WriteSnapshot)]
        self.withheld_logs += [each for each in effects if isinstance(each, WriteEpochLog)]
        return self._spilling.due(now_ns)

    def covers(self, epoch: int) -> bool:
        """Return whether a hot standby can take over from checkpoint `epoch`.

        It must have passed that barrier, and at most one later barrier.
        """
        behind = self.execution.checkpointing.encodes_behind(epoch) + sum(each.epoch > epoch for each in self.withheld)
        return self.cursor.epoch >= epoch and behind < 2

    def settle(self, epoch: int, files: Sequence[SnapshotFile]) -> list[Effect]:
        """Drop, in a hot standby that has passed barrier `epoch`, the data that this complete checkpoint covers.

        Args:
            files: the files that the task has written for the checkpoint; they determine when the next complete
                snapshot is due.
        """
        invariant(self.cursor.epoch >= epoch, "the barrier has been passed", task=self.name, epoch=epoch)
        self.withheld = [each for each in self.withheld if each.epoch > epoch]
        self.withheld_logs = [each for each in self.withheld_logs if each.epoch >= epoch]
        self.execution.checkpointing.files = list(files)
        cut = self.execution.checkpointing.completed(epoch)
        effects = truncate(epoch, cut, self.holdings, self.channels)
        self.execution.schedule.checkpoint_completed(epoch)
        self.retention.completed(epoch)
        return [each for each in effects if isinstance(each, RemoveSegments)]

    def _greet_ahead(self, event: GreetAhead, now_ns: int) -> list[Effect]:
        invariant(self.recovery.state is State.SHADOWING, "only a hot standby greets in advance", task=self.name)
        return self.exchange.greet_ahead(event.peers, event.incarnation)

    def _promoted(self, event: Promoted, now_ns: int) -> list[Effect]:
        """Turn this hot standby into the task; the events performed so far are treated as restored."""
        invariant(self.covers(event.epoch), "a hot standby has come that far", task=self.name, epoch=event.epoch)
        effects = self.settle(event.epoch, event.files)
        self.inquiry = Inquiry(event.rollback)
        self.execution.writing.rollback = self.echo.rollback = event.rollback.number
        self.execution.checkpointing.resume(event.epoch, event.files, self.withheld[0] if self.withheld else None)
        self.incarnation = self.exchange.incarnation = self.execution.writing.incarnation = event.incarnation
        self.execution.schedule.replayed_elements = 0
        return effects

    # -- neighbours ----------------------------------------------------------------------------------

    def _frame_received(self, event: FrameReceived, now_ns: int) -> list[Effect]:
        state = self.recovery.state
        regenerating = state in (State.COLLECTING, State.REPLAYING)
        effects = self.exchange.receive(event.link, list(event.parts), regenerating, now_ns)
        return effects + self._collected(now_ns) if state is State.COLLECTING else effects

    def _peer_up(self, event: PeerUp, now_ns: int) -> list[Effect]:
        self.exchange.peer_up(event.task, event.incarnation, event.compress, now_ns)
        effects = self._answer_early()
        return effects if self.recovery.state in (State.RESTORED, State.SHADOWING) else effects + self._pump(now_ns)

    def _answer_early(self) -> list[Effect]:
        return self.exchange.answer_early() if self.inquiry.asked is None else []

    def _pump(self, now_ns: int) -> list[Effect]:
        return self.exchange.pump(now_ns) if self.inquiry.asked is None else []

    def _peer_down(self, event: PeerDown, now_ns: int) -> list[Effect]:
        self.exchange.peer_down(event.task, event.incarnation)
        return []

    def _sink_opened(self, event: SinkOpened, now_ns: int) -> list[Effect]:
        sink, state = self.channels.sinks[event.channel], event.state
        if self._logging:
            visible = self._rows_visible.setdefault(event.channel, state.next)
            if sink.untruncated(state):
                return [TruncateSink(sink.id, sink.covered), OpenSink(sink.id)]
            mark = sink.orphaned(state, self.inquiry.rollback)
            if mark is not None:
                return [WithdrawRows(event.channel, mark)]
            self.holdings.merge([d for d in state.logs if d.task in self.holdings.logs])
            self.holdings.depend((*log, extent) for log, extent in depended(state.marks).items())
        sink.open(state, self._logging or sink.staging)
        effects: list[Effect] = []
        if self._logging and state.next < visible:
            effects.append(Phase("withdrawn", visible - state.next))
        return effects + self._answered_inquiry() + self._collected(now_ns)

    def _rows_committed(self, event: RowsCommitted, now_ns: int) -> list[Effect]:
        self.channels.sinks[event.channel].shown(event.epoch)
        self.execution.writing.cover(event.epoch)
        return []

    def _collected(self, now_ns: int) -> list[Effect]:
        """Begin to replay once all downstream tasks have answered (D5), unless determinants are lost (D9)."""
        if self.recovery.state is not State.COLLECTING or self.inquiry.asked is not None:
            return []
        answered = [o.welcomed for o in self.channels.downstream.values()]
        if not all(answered + [s.opened for s in self.channels.sinks.values()]):
            return []
        read = self.flushing.request_read()
        if read or self.flushing.reading:
            return read
        missing = self.holdings.missing()
        if missing:
            news, self.lost = missing != self.lost, missing
            return [Phase("lost")] if news else []
        if not self.flushing.begun:
            return self.flushing.begin()
        self.recovery.step(RecoveryStep.COLLECTED, now_ns)
        return [Phase("collected"), *self.exchange.collected()]

    # -- lost determinants (D9) ----------------------------------------------------------------------

    def _orphan_query(self, event: OrphanQuery, now_ns: int) -> list[Effect]:
        self.inquiry.ask(event)
        return self._answered_inquiry()

    def _answered_inquiry(self) -> list[Effect]:
        return self.inquiry.answer(self.recovery.state, self.holdings, self.channels)

    def _inquiry_resolved(self, event: InquiryResolved, now_ns: int) -> list[Effect]:
        if not self.inquiry.decided(event.rollback):
            return []
        self.idle = self.inquiry.asked is not None  # without an open inquiry, queued elements may be performed
        self.echo.give_up(now_ns)
        self.execution.writing.rollback = self.echo.rollback = event.rollback.number
        retreats = event.rollback.retreats
        self.holdings.cut(retreats)
        for channel in self.channels.network:
            if channel.source in retreats:
                channel.give_back()
        for source, retreat in retreats.items():
            self.exchange.announce(source, retreat.incarnation)
        queued = [extent for channel in self.channels.network for extent in channel.queued_depends()]
        self.holdings.forget_beyond([*self.holdings.dependencies(), *queued])
        for output in self.channels.downstream.values():
            output.seen.cut(retreats)
        return self._answer_early() + self._pump(now_ns)

    def retained(self, rollback: Rollback) -> Knowledge:
        """Return the determinants that the next incarnation in this process keeps."""
        self.holdings.cut(rollback.retreats)
        return self.holdings.knowledge()

    # -- checkpoints and the disk --------------------------------------------------------------------

    def _checkpoint_requested(self, event: CheckpointRequested, now_ns: int) -> list[Effect]:
        self.execution.schedule.request_checkpoint(event.epoch, event.final, event.hold)
        return []

    def _job_ended(self, event: JobEnded, now_ns: int) -> list[Effect]:
        return self.execution.writing.last_bundles()

    def _checkpoint_completed(self, event: CheckpointCompleted, now_ns: int) -> list[Effect]:
        self.execution.schedule.checkpoint_completed(event.epoch)
        self.retention.completed(event.epoch)
        cut = self.execution.checkpointing.completed(event.epoch)
        return truncate(event.epoch, cut, self.holdings, self.channels)

    def _snapshot_written(self, event: SnapshotWritten, now_ns: int) -> list[Effect]:
        return self.execution.checkpointing.written(event.epoch, event.file)

    def _snapshots_merged(self, event: SnapshotsMerged, now_ns: int) -> list[Effect]:
        return self.execution.checkpointing.merged(event.sources, event.file)

    def _stable_read(self, event: StableRead, now_ns: int) -> list[Effect]:
        self.flushing.read(event.logs)
        return self._collected(now_ns)

    def _stable_written(self, event: StableWritten, now_ns: int) -> list[Effect]:
        self.flushing.written(event.extents)
        return self._collected(now_ns)

    def _stable_failed(self, event: StableFailed, now_ns: int) -> list[Effect]:
        self.flushing.failed(now_ns)
        return self._collected(now_ns)

    def _segment_written(self, event: SegmentWritten, now_ns: int) -> list[Effect]:
        return self._spilling.written(event)

    def _segment_failed(self, event: SegmentFailed, now_ns: int) -> list[Effect]:
        self._spilling.failed(now_ns)
        return []

    def _segment_read(self, event: SegmentRead, now_ns: int) -> list[Effect]:
        self.channels.downstream[event.channel].loaded(event.segment, dict(event.payloads))
        return self._pump(now_ns)

    def _source_read(self, event: SourceRead, now_ns: int) -> list[Effect]:
        partition = self._partitions[event.channel]
        partition.answered(event.first, event.records, event.origin_ns, event.ended, event.marks)
        return []

    # -- the outside -----------------------------------------------------------------------------------

    def _response_received(self, event: ResponseReceived, now_ns: int) -> list[Effect]:
        self.execution.response(event)
        return []

    def _state_query(self, event: StateQuery, now_ns: int) -> list[Effect]:
        state = self.recovery.state
        facts: dict[str, Any] = {"task": self.name, "incarnation": self.incarnation, "epoch": self.cursor.epoch}
        facts["state"] = state.value
        if state is State.RUNNING:
            facts["tables"] = self.execution.chain.inspect(event.operator, event.key)
        return [StateReply(event.request, facts)]

    # -- a turn --------------------------------------------------------------------------------------

    def _turn(self, event: Turn, now_ns: int) -> list[Effect]:
        if self.recovery.state is State.SHADOWING:
            return self._shadowed_turn(now_ns)
        effects: list[Effect] = []
        execution, echoes = self.execution, self.echo.state is not _ABSENT
        execution.begin_turn(event.took_ns)
        self.idle = True
        if self.recovery.state in PERFORMS:
            # The output of an event is sent in the same turn. The state is encoded in separate turns, so that encoding
            # does not delay the output.
            checkpointing = execution.checkpointing
            performed = not checkpointing.encodes_next and not self.full
            performed = performed and execution.perform(effects, self.small_per_turn, self.replayed_per_turn, now_ns)
            if echoes and self.recovery.state is State.RUNNING:
                self.cursor.log_run()
            more = checkpointing.encodes_next or (performed and execution.schedule.may_continue)
            if performed:
                checkpointing.encodes_next = checkpointing.encoding
            elif checkpointing.encoding:
                effects += checkpointing.step(execution.schedule.may_continue)
            self.idle = not more and not checkpointing.encoding
            execution.writing.flush(effects, force=not more)
            effects += self._reading.due()
        effects += self.exchange.pump(now_ns)
        for channel in self.channels.network:
            if channel.flow.uncredited_bytes or channel.starved:
                effects += self.exchange.credit(channel, now_ns)
        effects += self._spilling.due(now_ns)
        effects += self.flushing.due(now_ns)
        if echoes and self.recovery.state in PERFORMS:  # in earlier states, the task's own log may lack stable bytes
            effects += self.echo.due(execution.checkpointing.cuts[self.cursor.epoch], self.incarnation, now_ns)
        if not self._first_output_reported and (self.exchange.first_output or execution.writing.wrote):
            self._first_output_reported = True
            effects.append(Phase("first_output"))
        return effects

    @property
    def full(self) -> bool:
        """Whether the task must wait because a connected peer is slow or the in-flight log exceeds its limits."""
        return any(o.congested for o in self.channels.downstream.values()) or self._spilling.over_bounds()

    def next_deadline_ns(self, now_ns: int) -> int | None:
        """Return the monotonic time at which a `Turn` is due even if nothing arrives, or None if there is none."""
        if self.inquiry.asked is not None:
            return None
        due = [self.exchange.next_deadline_ns(), self.flushing.next_deadline_ns(now_ns)]
        live = self.recovery.state is State.RUNNING and not self.finished and not self.execution.schedule.standing
        live = live and not self.full
        timer_ns = self.execution.chain.next_timer_ns() if live else None
        if timer_ns is not None:
            due.append(now_ns + max(0, timer_ns - self._live.wall_ns()))
        return min((at for at in due if at is not None), default=None)

    def counters(self) -> dict[str, Any]:
        """Return counters for heartbeats; positions are absolute, so the last report of any incarnation is valid."""

        return {
            **self.channels.counters(),
            "determinant_bytes": dict(self.cursor.bytes_by_kind),
            "delta_bytes": self.exchange.delta_bytes,
            "log_bytes": self.holdings.size,
            "unwritten_bytes": self.flushing.unwritten_bytes,
            "replayed_elements": self.execution.schedule.replayed_elements,
            "dropped_frames": sum(self.exchange.faults.values()),
            "snapshot_files": len(self.execution.checkpointing.files),
            "counts": self.execution.chain.counts(),
        }


_HANDLERS: dict[type, Callable[..., list[Effect]]] = {
    Started: TaskProtocol._started,
    HotStandbyUp: TaskProtocol._hot_standby_up,
    HotStandbyDown: TaskProtocol._hot_standby_down,
    Shadowed: TaskProtocol._shadowed,
    Echoed: TaskProtocol._echoed,
    GreetAhead: TaskProtocol._greet_ahead,
    Promoted: TaskProtocol._promoted,
    FrameReceived: TaskProtocol._frame_received,
    PeerUp: TaskProtocol._peer_up,
    PeerDown: TaskProtocol._peer_down,
    SinkOpened: TaskProtocol._sink_opened,
    RowsCommitted: TaskProtocol._rows_committed,
    SourceRead: TaskProtocol._source_read,
    CheckpointRequested: TaskProtocol._checkpoint_requested,
    CheckpointCompleted: TaskProtocol._checkpoint_completed,
    OrphanQuery: TaskProtocol._orphan_query,
    InquiryResolved: TaskProtocol._inquiry_resolved,
    SnapshotWritten: TaskProtocol._snapshot_written,
    SnapshotsMerged: TaskProtocol._snapshots_merged,
    StableRead: TaskProtocol._stable_read,
    StableWritten: TaskProtocol._stable_written,
    StableFailed: TaskProtocol._stable_failed,
    SegmentWritten: TaskProtocol._segment_written,
    SegmentFailed: TaskProtocol._segment_failed,
    SegmentRead: TaskProtocol._segment_read,
    ResponseReceived: TaskProtocol._response_received,
    StateQuery: TaskProtocol._state_query,
    JobEnded: TaskProtocol._job_ended,
    Turn: TaskProtocol._turn,
}
