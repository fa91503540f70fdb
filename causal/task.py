"""A task: one single-threaded state machine, events in, effects out (D1).

Live, `Turn` picks what to perform from what has arrived and logs it; replaying, it reads the log and
waits until that can be performed.  `_perform_*` serves both: there is no second code path for recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from causal import batch
from causal.channels import Channels
from causal.checkpointing import Checkpointing, Cut, SnapshotFile
from causal.config import JobConfig
from causal.determinants import Barrier, Order, Timer
from causal.dissemination import Holdings
from causal.effects import (
    Effect,
    OpenSink,
    Phase,
    RemoveSegments,
    SourceCompleted,
    TruncateSink,
    WriteBundle,
)
from causal.errors import PeerViolation, ReplayDivergence, invariant
from causal.events import (
    CheckpointAsked,
    CheckpointCompleted,
    Event,
    FrameReceived,
    PeerAt,
    PeerDown,
    SegmentFailed,
    SegmentRead,
    SegmentWritten,
    SinkOpened,
    SnapshotWritten,
    SourceRead,
    Started,
    Turn,
)
from causal.exchange import Exchange
from causal.ids import TaskIndex
from causal.input_channel import InputChannel
from causal.ports import Chain, Live, Output
from causal.reading import Reading
from causal.recovery import ANSWERS_UPSTREAM, PERFORMS, Recovery, State, Step
from causal.schedule import Schedule
from causal.services import CausalServices
from causal.spilling import Spilling
from causal.topology import Topology


class TaskProtocol:
    """One incarnation of one task.

    Args:
        cut: where the task stood at the checkpoint that `chain` was restored from; `Cut()` for none.
        files: the files of that checkpoint.
        tell: called with one line on each new sort of fault; for the log of the process.

    `handle` is the only mutator.  It raises an error of `causal.errors` when the task cannot go on;
    the task is then in state FAILED and must not be handled further.
    """

    def __init__(
        self,
        topology: Topology,
        task: TaskIndex,
        incarnation: int,
        config: JobConfig,
        chain: Chain,
        live: Live,
        cut: Cut,
        files: list[SnapshotFile],
        tell: Callable[[str], None],
    ) -> None:
        self.name = topology.tasks[task].name
        self.incarnation = incarnation
        self._config = config
        self._recording = config.guarantee == "causal"
        self._chain = chain
        self._live = live
        self._tell = tell
        self.recovery = Recovery(self.name)
        self.holdings = Holdings(topology, task, config.sharing_depth if self._recording else 0, cut.epoch)
        self.schedule = Schedule(self.holdings.own, cut.epoch, self.name, self._recording)
        self.schedule.last_ns = cut.last_ns
        self._services = CausalServices(self.schedule, live)
        self._checkpointing = Checkpointing(chain, cut, files)
        self.finished = cut.finished
        self.channels = channels = Channels(topology, task, config, cut)
        self.inputs = channels.inputs
        self._outputs = channels.outputs
        self._spilling = Spilling(channels, config)
        self._reading = Reading(channels, self.schedule, config.batch_elements_max)
        self.exchange = Exchange(
            topology, task, incarnation, config, self.holdings,
            {c.id: c for c in channels.network}, channels.downstream, tell,
        )  # fmt: skip
        self._asked_epoch = 0
        self._next_input = 0
        self.idle = False
        """Whether a `Turn` would find nothing to do until something arrives or a deadline passes."""
        self._replayed_elements = 0
        self._first_output_told = False
        self.reported_finished = False

    # -- the one mutator ---------------------------------------------------------------------------

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        """Learn `event` at monotonic time `now_ns`; the effects are to be performed in order (see `effects`)."""
        self.idle = False  # whatever was learnt may have given a Turn something to do
        try:
            return _HANDLERS[type(event)](self, event, now_ns)
        except ReplayDivergence as problem:
            self.recovery.step(Step.FAILED, now_ns)
            if self._recording and self.holdings.partial:  # a store holds no dependencies, so it may be either
                raise ReplayDivergence(
                    f"{problem} (or more neighbours failed at once than the sharing depth covers)"
                ) from problem
            raise
        except Exception:
            self.recovery.step(Step.FAILED, now_ns)
            raise

    def _started(self, event: Started, now_ns: int) -> list[Effect]:
        self.recovery.step(Step.STARTED, now_ns)
        effects: list[Effect] = [OpenSink(channel) for channel in self.channels.sinks]
        return effects + self.exchange.pump(now_ns) + self._collected(now_ns)

    def _frame_received(self, event: FrameReceived, now_ns: int) -> list[Effect]:
        state = self.recovery.state
        regenerating = state in (State.COLLECTING, State.REPLAYING)
        answers = state in ANSWERS_UPSTREAM
        effects = self.exchange.receive(event.link, list(event.parts), answers, regenerating, now_ns)
        return effects + self._collected(now_ns) if state is State.COLLECTING else effects

    def _peer_at(self, event: PeerAt, now_ns: int) -> list[Effect]:
        self.exchange.compress[event.task] = event.compress
        for output in self.channels.downstream.values():
            if output.target == event.task and event.incarnation >= output.peer_incarnation:
                output.redial(event.incarnation, now_ns)
        for channel in self.channels.network:
            if channel.source == event.task:
                channel.introduce(max(channel.peer_incarnation, event.incarnation))
        return self.exchange.pump(now_ns) if self.recovery.state is not State.RESTORED else []

    def _peer_down(self, event: PeerDown, now_ns: int) -> list[Effect]:
        for output in self.channels.downstream.values():
            if output.target == event.task and event.incarnation >= output.peer_incarnation:
                output.lose()
        return []

    def _sink_opened(self, event: SinkOpened, now_ns: int) -> list[Effect]:
        if self._recording:
            self.holdings.merge([d for d in event.held.logs if d.task in self.holdings.logs])
        self.channels.sinks[event.channel].open(event.held, self._recording)
        return self._collected(now_ns)

    def _collected(self, now_ns: int) -> list[Effect]:
        """Begin to replay once everybody downstream has answered (D5)."""
        if self.recovery.state is not State.COLLECTING:
            return []
        answered = [o.welcomed for o in self.channels.downstream.values()]
        if not all(answered + [s.opened for s in self.channels.sinks.values()]):
            return []
        self.holdings.lost()
        self.exchange.collect = False
        self.recovery.step(Step.COLLECTED, now_ns)
        return [Phase("collected"), *self.exchange.answer_held()]

    def _checkpoint_asked(self, event: CheckpointAsked, now_ns: int) -> list[Effect]:
        self._asked_epoch = max(self._asked_epoch, event.epoch)
        return []

    def _checkpoint_completed(self, event: CheckpointCompleted, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        cut = self._checkpointing.completed(event.epoch)
        self.holdings.truncate(event.epoch)
        gone: set[int] = set()
        for output in self.channels.downstream.values():
            gone |= output.truncate(event.epoch)
        if gone:
            effects.append(RemoveSegments(sorted(gone)))
        effects += [TruncateSink(channel, event.epoch) for channel in self.channels.sinks]
        if cut is not None:
            effects += [
                SourceCompleted(c.id, cut.inputs[c.id][0]) for c in self.channels.partitions if c.id in cut.inputs
            ]
        return effects

    def _snapshot_written(self, event: SnapshotWritten, now_ns: int) -> list[Effect]:
        return self._checkpointing.written(event.epoch, event.file)

    def _segment_written(self, event: SegmentWritten, now_ns: int) -> list[Effect]:
        return self._spilling.written(event)

    def _segment_failed(self, event: SegmentFailed, now_ns: int) -> list[Effect]:
        self._spilling.failed(now_ns)
        return []

    def _segment_read(self, event: SegmentRead, now_ns: int) -> list[Effect]:
        self.exchange.loaded(event.segment)
        self.channels.downstream[event.channel].loaded(event.segment, dict(event.payloads))
        return self.exchange.pump(now_ns)

    def _source_read(self, event: SourceRead, now_ns: int) -> list[Effect]:
        self._reading.answered(event)
        return []

    # -- one event of the schedule ------------------------------------------------------------------

    def _turn(self, event: Turn, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        self.idle = True
        if self.recovery.state in PERFORMS:
            performed = not self._full() and self._perform_next(effects, now_ns)
            self.idle = not performed and not self._checkpointing.encoding
            if self._checkpointing.encoding:
                effects += self._checkpointing.step()
            self._flush_sinks(effects, force=not performed)
            effects += self._reading.due()
        effects += self.exchange.pump(now_ns)
        for channel in self.channels.network:
            if channel.uncredited_bytes:
                effects += self.exchange.credit(channel, now_ns)
        effects += self._spilling.due(now_ns)
        if self.exchange.first_output and not self._first_output_told:
            self._first_output_told = True
            effects.append(Phase("first_output"))
        return effects

    def _perform_next(self, effects: list[Effect], now_ns: int) -> bool:
        schedule = self.schedule
        if self.recovery.state is State.REPLAYING:
            if schedule.replaying:
                return self._replay_next(effects)
            if not schedule.exhausted():
                raise ReplayDivergence(
                    f"{self.name}: its log goes on behind barrier {schedule.epoch + 1}, the replay does not"
                )
            self._go_live(effects, now_ns)
        return self._perform_live(effects)

    def _replay_next(self, effects: list[Effect]) -> bool:
        told = self.schedule.peek()
        if type(told) is Order:
            if told.input >= len(self.inputs):
                raise ReplayDivergence(f"{self.name}: its log names input {told.input}, it has {len(self.inputs)}")
            channel = self.inputs[told.input]
            if channel.queued < told.count:
                return False
            self.schedule.take(Order)
            self._replayed_elements += told.count
            self._perform_order(channel, told.count, effects)
        elif type(told) is Timer:
            self.schedule.take(Timer)
            self._emit(self._chain.fire(told.due_ns, self._services), effects)
        elif type(told) is Barrier:
            self.schedule.take(Barrier)
            self._perform_barrier(told.epoch, effects)
        else:
            raise ReplayDivergence(
                f"{self.name}, epoch {self.schedule.epoch}: the log has an answer ({told.kind}) that the replay "
                "did not ask for; user code took another path than before: use ctx for clock, random numbers and calls"
            )
        return True

    def _go_live(self, effects: list[Effect], now_ns: int) -> None:
        for output in self._outputs:
            output.replayed()
        self.recovery.step(Step.REPLAYED, now_ns)
        effects.append(Phase("replayed", self._replayed_elements))
        effects.append(Phase("running"))

    def _perform_live(self, effects: list[Effect]) -> bool:
        due_ns = None if self.finished else self._chain.next_timer_ns()
        if due_ns is not None and due_ns <= self._live.wall_ns():
            reading = self._services.reading_ns()
            self.schedule.record(Timer(reading))
            self._emit(self._chain.fire(reading, self._services), effects)
            return True
        if self.channels.partitions and self._asked_epoch > self.schedule.epoch and not self._checkpointing.encoding:
            epoch = self.schedule.epoch + 1
            self.schedule.record(Barrier(epoch))
            self._perform_barrier(epoch, effects)
            return True
        inputs = self.inputs
        for step in range(len(inputs)):
            channel = inputs[(self._next_input + step) % len(inputs)]
            count = channel.head_count(self._config.batch_elements_max, self._config.credit_bytes // 2)
            if count:
                self._next_input = (channel.ordinal + 1) % len(inputs)
                self.schedule.record_order(channel.ordinal, count)
                self._perform_order(channel, count, effects)
                return True
        return False

    def _perform_order(self, channel: InputChannel, count: int, effects: list[Effect]) -> None:
        first = channel.delivered
        try:
            chunks = channel.take(count)
        except PeerViolation as problem:
            raise ReplayDivergence(
                f"{self.name}: {problem}; an operator upstream is nondeterministic: use ctx"
            ) from problem
        if self.holdings.partial:
            self.holdings.depend(channel.delivered_depends())
        kind = chunks[0].kind
        if kind == batch.BARRIER:
            epoch = batch.stamp_of(chunks[0])
            if self._checkpointing.deliver(channel, epoch, self.channels.network, self.schedule.epoch):
                self._perform_barrier(epoch, effects)
        elif kind == batch.END:
            self._perform_end(effects)
        else:
            self._emit(self._chain.deliver(channel.ordinal, chunks, first, self._services), effects)

    def _perform_end(self, effects: list[Effect]) -> None:
        if not all(channel.ended for channel in self.inputs):
            return
        self._emit(self._chain.finish(self._services), effects)
        self.finished = True
        for output in self._outputs:
            output.put(batch.end())

    def _perform_barrier(self, epoch: int, effects: list[Effect]) -> None:
        """All inputs have come to barrier `epoch`: pass it on, then freeze the state."""
        invariant(epoch == self.schedule.epoch + 1, "barriers come in order", task=self.name, barrier=epoch)
        self._flush_sinks(effects, force=True)
        effects += self._checkpointing.finish_encoding()
        for output in self._outputs:
            output.put(batch.barrier(epoch))
        self.schedule.advance(epoch)
        inputs = {c.id: (c.delivered, c.digest_at_barrier(epoch), c.ended) for c in self.inputs}
        outputs: dict[int, tuple[int, int]] = {o.id: (o.position, o.digest) for o in self._outputs}
        cut = Cut(epoch, inputs, outputs, self.schedule.last_ns, self.finished)
        self._checkpointing.freeze(cut)

    def _emit(self, outputs: list[Output], effects: list[Effect]) -> None:
        for ordinal, chunk in outputs:
            self._outputs[ordinal].put(chunk)

    # -- around it ----------------------------------------------------------------------------------

    def _flush_sinks(self, effects: list[Effect], force: bool) -> None:
        for sink in self.channels.sinks.values():
            if sink.waiting and (force or sink.full):
                bundle, origins = sink.bundle(self.holdings if self._recording else None, self.incarnation)
                effects.append(WriteBundle(sink.id, bundle, origins))
                self.exchange.first_output = True
        if self.finished and not self.reported_finished and self.recovery.state is State.RUNNING:
            if not any(sink.waiting for sink in self.channels.sinks.values()):
                self.reported_finished = True
                effects.append(Phase("finished"))

    def _full(self) -> bool:
        """Whether the task must wait: a connected peer does not keep up, or the in-flight log is over its bounds."""
        return any(o.congested for o in self.channels.downstream.values()) or self._spilling.over_bounds()

    def next_deadline_ns(self, now_ns: int) -> int | None:
        """The monotonic time at which a `Turn` is due although nothing arrives; None if there is none."""
        due = self.exchange.next_deadline_ns()
        live = self.recovery.state is State.RUNNING and not self.finished and not self._full()
        timer_ns = self._chain.next_timer_ns() if live else None
        if timer_ns is not None:
            at = now_ns + max(0, timer_ns - self._live.wall_ns())
            due = at if due is None else min(due, at)
        return due

    def counters(self) -> dict[str, Any]:
        """Figures for heartbeats; positions are absolute, so the last report of any incarnation is the true one."""
        return {
            **self.channels.counters(),
            "determinant_bytes": dict(self.schedule.bytes_by_kind),
            "delta_bytes": self.exchange.delta_bytes,
            "log_bytes": self.holdings.size,
            "replayed_elements": self._replayed_elements,
            "dropped_frames": sum(self.exchange.faults.values()),
        }


_HANDLERS: dict[type, Callable[..., list[Effect]]] = {
    Started: TaskProtocol._started,
    FrameReceived: TaskProtocol._frame_received,
    PeerAt: TaskProtocol._peer_at,
    PeerDown: TaskProtocol._peer_down,
    SinkOpened: TaskProtocol._sink_opened,
    SourceRead: TaskProtocol._source_read,
    CheckpointAsked: TaskProtocol._checkpoint_asked,
    CheckpointCompleted: TaskProtocol._checkpoint_completed,
    SnapshotWritten: TaskProtocol._snapshot_written,
    SegmentWritten: TaskProtocol._segment_written,
    SegmentFailed: TaskProtocol._segment_failed,
    SegmentRead: TaskProtocol._segment_read,
    Turn: TaskProtocol._turn,
}
