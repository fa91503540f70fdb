"""The step of a task: performs one event of its schedule on the chain, the same way live and in a replay (D1)."""

from __future__ import annotations

from causal.channels.ends import Channels
from causal.channels.queue import InputQueue
from causal.cut import Cut
from causal.determinants import Answer, Barrier, Order, Timer
from causal.effects import Effect, StageRows, WriteEpochLog, WriteRecording
from causal.errors import PeerViolation, ReplayDivergence, invariant
from causal.logs.dissemination import Holdings
from causal.ports import Chain, Output
from causal.records import batch
from causal.task.batch_sizer import BatchSizer
from causal.task.checkpointing import Checkpointing
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.recording import Recording
from causal.task.row_writing import RowWriting
from causal.task.schedule import Schedule, ScheduledEvent
from causal.task.services import CausalServices


class Step:
    """Performs the events of one incarnation of one task.

    Attributes:
        unchanged: whether nothing has been performed since the last barrier, so that a snapshot at another barrier
            would contain the same state.

    Args:
        keeps_logs: whether the log of each epoch is kept for later replays.
    """

    def __init__(
        self, name: str, chain: Chain, channels: Channels, holdings: Holdings, cursor: DeterminantCursor,
        schedule: Schedule, services: CausalServices, checkpointing: Checkpointing, writing: RowWriting,
        pace: BatchSizer, recording: Recording | None, keeps_logs: bool = False,
    ) -> None:  # fmt: skip
        self.unchanged = False
        self.replayed = (cursor.epoch, 0)
        """The epoch and the byte of its log at which this incarnation began to perform new events."""
        self._name = name
        self._chain = chain
        self._channels = channels
        self._inputs = channels.inputs
        self._outputs = channels.outputs
        self._partitions = {each.id for each in channels.partitions}
        self._holdings = holdings
        self._cursor = cursor
        self._schedule = schedule
        self._services = services
        self._checkpointing = checkpointing
        self._writing = writing
        self._pace = pace
        self._recording = recording
        self._keeps_logs = keeps_logs

    def perform(self, event: ScheduledEvent, effects: list[Effect]) -> None:
        """Perform an event that the schedule has selected.

        Raises:
            ReplayDivergence: the event cannot occur here.
            OperatorFailed: user code raised an exception.
        """
        if type(event) is Order:
            self._deliver(self._inputs[event.input], event.count, effects)
        elif type(event) is Timer:
            self._emit(self._chain.fire(event.due_ns, self._services))
        elif type(event) is Answer:
            self._emit(self._chain.answer(event.operator, event.number, event.body, self._services))
            self._finish()
        elif type(event) is Barrier:
            self._pass_barrier(event.epoch, event.final, effects)

    def _deliver(self, channel: InputQueue, count: int, effects: list[Effect]) -> None:
        first = channel.delivered
        self._pace.turn_elements += count
        try:
            chunks = channel.take(count)
        except PeerViolation as problem:
            raise ReplayDivergence(f"an operator upstream of {self._name}", str(problem)) from problem
        if self._recording is not None:
            self._recording.delivered(channel.ordinal, chunks)
        if self._holdings.partial:
            self._holdings.depend(channel.delivered_depends())
        kind = chunks[0].kind
        if kind == batch.BARRIER:
            epoch = batch.stamp_of(chunks[0])
            if self._checkpointing.deliver(channel, epoch, self._channels.network, self._cursor.epoch):
                self._pass_barrier(epoch, batch.is_final(chunks[0]), effects)
        elif kind == batch.END:
            self._emit(self._chain.ended(channel.ordinal, self._services))
            self._finish()
        else:
            self._emit(self._chain.deliver(channel.ordinal, chunks, first, self._services))
            if channel.id in self._partitions:
                channel.mark = self._chain.mark_ns(channel.ordinal)

    def _finish(self) -> None:
        """Finish the chain once all inputs have ended and no request is unanswered."""
        schedule = self._schedule
        if schedule.finished or self._chain.waiting() or not all(channel.ended for channel in self._inputs):
            return
        self._emit(self._chain.finish(self._services))
        schedule.finished = True
        ended = self._chain.ended_outputs()
        for ordinal, output in enumerate(self._outputs):
            if ordinal not in ended:
                output.put(batch.end())

    def _pass_barrier(self, epoch: int, final: bool, effects: list[Effect]) -> None:
        """Forward barrier `epoch`, which has arrived on all inputs, and freeze the state."""
        invariant(epoch == self._cursor.epoch + 1, "barriers come in order", task=self._name, barrier=epoch)
        schedule = self._schedule
        self._writing.flush(effects, force=True)
        effects += [StageRows(sink.id, epoch) for sink in self._channels.sinks.values() if sink.staging]
        effects += self._checkpointing.finish_encoding()
        for output in self._outputs:
            output.put(batch.barrier(epoch, final))
        log = b""
        if self._recording is not None or self._keeps_logs:
            log = self._holdings.own.bytes_of(self._cursor.epoch)
        if self._recording is not None:
            effects.append(WriteRecording(epoch, self._recording.parts(log)))
        self._cursor.advance(epoch)
        schedule.standing = final
        cut = self.cut()
        if self._keeps_logs:
            effects.append(WriteEpochLog(epoch - 1, log, cut, self._replayed_in(epoch - 1)))
        self._checkpointing.freeze(cut)
        self.unchanged = True

    def cut(self) -> Cut:
        """Return the position of the task, at a barrier or in the middle of an epoch."""
        epoch = self._cursor.epoch
        inputs = {c.id: (c.delivered, c.digest_at_barrier(epoch), c.ended) for c in self._inputs}
        outputs: dict[int, tuple[int, int]] = {o.id: (o.position, o.digest) for o in self._outputs}
        marks = {c.id: (c.mark, c.idle) for c in self._inputs if c.mark is not None or c.idle}
        places = {c.id: place for c in self._channels.partitions if (place := c.place()) is not None}
        return Cut(epoch, inputs, outputs, self._cursor.last_ns, self._schedule.finished, marks, places)

    def unfinished_log(self, failure: str) -> WriteEpochLog | None:
        """Return the log of the epoch that the task has not finished, because its process ends; None if none is kept.

        Args:
            failure: the exception that an event has raised; empty if the task ends between two events.
        """
        cursor = self._cursor
        if not self._keeps_logs or cursor.complete:
            return None
        cursor.log_run()
        for output in self._channels.downstream.values():
            output.seal()
        epoch, log = cursor.epoch, self._holdings.own.bytes_of(cursor.epoch)
        return WriteEpochLog(epoch, log, self.cut(), self._replayed_in(epoch), failure)

    def _replayed_in(self, epoch: int) -> int:
        """Return how many bytes of the log of an epoch this incarnation has replayed."""
        ended, replayed = self.replayed
        return replayed if ended == epoch else 0

    def _emit(self, outputs: list[Output]) -> None:
        """Add the chunks that the chain returned for an event to the outputs."""
        self.unchanged = False
        if outputs and self._schedule.commutes:
            self._schedule.show()
        for ordinal, chunk in outputs:
            self._pace.turn_bytes += chunk.size
            self._outputs[ordinal].put(chunk)
