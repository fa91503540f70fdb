"""The execution of a task's schedule, one event at a time: from the log while it has any, then live (D1).

`perform_next` asks "what comes next?" and the schedule answers; `_perform_*` serves a replay and the
live task alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from causal.channels.ends import Channels
from causal.channels.flow import ALLOWANCE_BYTES_MIN
from causal.channels.queue import InputQueue
from causal.config import JobConfig
from causal.cut import Cut
from causal.determinants import Answer, Barrier, Order, Run, Timer
from causal.effects import Effect, Phase, SendRequests, StageRows, WriteBundle, WriteRecording
from causal.errors import PeerViolation, ReplayDivergence, invariant
from causal.events import ResponseReceived
from causal.logs.dissemination import Holdings
from causal.ports import Chain, Environment, Output, Request
from causal.records import batch
from causal.task.batch_sizer import BatchSizer
from causal.task.checkpointing import Checkpointing, SnapshotFile
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.picking import ByArrival, ByContent
from causal.task.recording import Recording
from causal.task.recovery import REPLAYS, Recovery, State, Step
from causal.task.services import CausalServices

LOOSE_BYTES_MAX = ALLOWANCE_BYTES_MIN // 2
"""The bytes of events whose order is left open: all inputs' queues can hold them while a replay waits for one."""


class Execution:
    """Runs one task's chain.

    Args:
        cut: the position of the task at the checkpoint that `chain` was restored from.
        files: the files of that checkpoint.

    Attributes:
        finished: whether all inputs have ended and the chain has emitted its last output.
        wrote: whether a bundle of this incarnation has been written.
    """

    def __init__(
        self, recovery: Recovery, config: JobConfig, chain: Chain, live: Environment, channels: Channels,
        holdings: Holdings,
        schedule: DeterminantCursor, cut: Cut, files: list[SnapshotFile], incarnation: int,
    ) -> None:  # fmt: skip
        self.name = recovery.task_name
        self.chain = chain
        self.schedule = schedule
        self.checkpointing = Checkpointing(chain, cut, files)
        self.finished = cut.finished
        self.reported_finished = False
        self.staged = False
        """Whether the task has finished and all its rows are staged or visible."""
        self.covered = cut.finished or not any(sink.staging for sink in channels.sinks.values())
        """Whether no row waits for a checkpoint: a complete one has the task finished, or rows are never staged."""
        self.replayed_elements = 0
        self.asked_epoch = 0
        self.final_epoch = 0
        """The checkpoint whose barrier is to be the last one; 0 for none."""
        self.holding = False
        """Whether a source delivers no records until checkpoint `_held_epoch` is complete."""
        self._held_epoch = self._completed_epoch = cut.epoch
        self.standing = False
        """Whether the final barrier has been performed, after which no event is."""
        self._epoch_recording = Recording() if config.verify_replay else None
        self.wrote = False
        self.unchanged = False
        """Whether nothing was performed since the last barrier, so that another one would find the same state."""
        self.rollback = 0
        """The number of the last decision about lost determinants that is known here; bundles are marked with it."""
        self._recovery = recovery
        self._elements_max = config.batch_elements_max
        bytes_max = config.channel_window_bytes // 2
        self.pace = BatchSizer(config.batch_elements_max, bytes_max, config.heartbeat_timeout_ms)
        self._turn_elements = self._turn_bytes = 0
        self._logging = config.guarantee == "causal"
        self._live = live
        self._channels = channels
        self._inputs = channels.inputs
        self._outputs = channels.outputs
        self._holdings = holdings
        self._services = CausalServices(schedule, live, recovery)
        self.incarnation = incarnation
        self._by_arrival = ByArrival(channels.inputs, self.pace, bytes_max)
        self._by_content = ByContent(channels.inputs) if channels.ordered else None
        self._commutes = chain.commutes and self._by_content is None and not channels.partitions
        self._loose_bytes = 0
        """The bytes of events that commute and have no entry in the log."""
        self._loose_bytes_max = min(LOOSE_BYTES_MAX, config.channel_window_bytes // 4)
        self._asked: dict[tuple[int, int], None] = {}
        self._unasked: list[Request] = []
        """The requests whose determinants are not stored yet."""
        self._answers: deque[ResponseReceived] = deque()

    def answered(self, event: ResponseReceived) -> None:
        """Process a response of the outside world, unless this incarnation did not send the request or has it
        already.
        """
        if self._asked.pop((event.operator, event.number), self) is None:
            self._answers.append(event)

    def ask_for(self, epoch: int, final: bool, hold: bool) -> None:
        """Request a checkpoint; its barrier is the last one if it is `final`.

        Args:
            hold: deliver no records of a source until it is complete.
        """
        self.asked_epoch = max(self.asked_epoch, epoch)
        if final:
            self.final_epoch = epoch
        if hold:
            self._held_epoch = max(self._held_epoch, epoch)
            self.holding = self._held_epoch > self._completed_epoch

    def completed(self, epoch: int) -> None:
        """Record that checkpoint `epoch` is complete: a source that waited for it resumes."""
        self._completed_epoch = max(self._completed_epoch, epoch)
        self.holding = self._held_epoch > self._completed_epoch

    def last_bundles(self) -> list[Effect]:
        """Return, at the end of the job, the bundles that inform every store that its rows stay."""
        if not self.reported_finished:
            return []
        partial = self._logging and self._holdings.partial
        sinks = self._channels.sinks.values()
        return [WriteBundle(sink.id, sink.last(partial, self.incarnation, self.rollback), []) for sink in sinks]

    def begin_turn(self, took_ns: int) -> None:
        """Record how long the previous turn lasted, which determines the size of the next events."""
        self.pace.took(self._turn_elements, self._turn_bytes, took_ns)
        self.checkpointing.took(took_ns)
        self._turn_elements = self._turn_bytes = 0

    def perform(self, effects: list[Effect], events_max: int, now_ns: int) -> bool:
        """Perform one step: one event, or in a replay up to `events_max`; false if none can be performed now.

        Together they deliver what waits in the queues, which credit bounds, and stop at as many elements as a live
        event has at most: no other work of the process waits longer.

        Raises:
            ReplayDivergence, OperatorFailed: as `perform_next`.
        """
        schedule = self.schedule
        if self._recovery.state not in REPLAYS or not schedule.replaying:
            return self.perform_next(effects, now_ns)
        stop = self.replayed_elements + (
            self.pace.elements if self.pace.reduced else max(self._elements_max, events_max)
        )
        left = events_max
        while left and self._replay_next(effects):
            left -= 1
            if self.replayed_elements >= stop or not schedule.replaying:
                break
        return left < events_max

    @property
    def may_continue(self) -> bool:
        """Whether another event may be performed now; false only if none can before something arrives or is due.

        So a task whose queues are empty becomes idle without a failed attempt, and a sink writes its rows.
        """
        if self._recovery.state is not State.RUNNING or self._by_content is not None or self._answers:
            return True
        if self.asked_epoch > self.schedule.epoch and self._channels.partitions:
            return True
        return any(channel.deliverable for channel in self._inputs)

    def perform_next(self, effects: list[Effect], now_ns: int) -> bool:
        """Perform one event; false if none can be performed now.

        Raises:
            ReplayDivergence: the log has an event that cannot happen here.
            OperatorFailed: user code raised.
        """
        schedule = self.schedule
        if self._recovery.state is State.SHADOWING:
            return self.rehearse_next(effects)
        if self._recovery.state is State.REPLAYING:
            if schedule.replaying:
                return self._replay_next(effects)
            if not schedule.exhausted():
                if self._by_content is not None:
                    return self._perform_between(self._by_content, effects)
                raise ReplayDivergence(
                    self.name, f"its log has more behind barrier {schedule.epoch + 1}, the replay has not"
                )
            # An ordered task's log does not show its own progress, but the receivers know their positions.
            if self._by_content is not None and any(output.expecting for output in self._outputs):
                return self._perform_ruled(self._by_content, effects)
            self._go_live(effects, now_ns)
        return self._perform_live(effects)

    def rehearse_next(self, effects: list[Effect]) -> bool:
        """Perform one event as the log says; false if it has no other, or its input has not arrived.

        Raises:
            ReplayDivergence, OperatorFailed: as `perform_next`.
        """
        if self.schedule.replaying:
            return self._replay_next(effects)
        if self._by_content is None or self._recovery.state is State.SHADOWING and self.schedule.exhausted():
            return False
        return self._perform_between(self._by_content, effects)

    def _perform_between(self, rule: ByContent, effects: list[Effect]) -> bool:
        """Perform an event by the rule alone, up to the barrier: this epoch's log has ended, a later one's has not."""
        epoch, before = self.schedule.epoch, self._holdings.own.extent(self.schedule.epoch)
        performed = self._perform_ruled(rule, effects)
        if self._holdings.own.extent(epoch) != before:
            raise ReplayDivergence(
                self.name,
                f"epoch {epoch}: the replay asks for an answer behind the end of its log, the run before did not",
            )
        return performed

    def _perform_ruled(self, rule: ByContent, effects: list[Effect]) -> bool:
        """Perform the event that the rule selects, if its elements have arrived."""
        chain = self.chain
        picked = rule.ruled(chain.full())
        if picked is None:
            return False
        channel, count = picked
        if self._recovery.state in REPLAYS:
            self.replayed_elements += count
        self.schedule.rule(rule.choice or chain.waiting() or chain.next_timer_ns() is not None)
        self._perform_order(channel, count, effects)
        return True

    def _replay_next(self, effects: list[Effect]) -> bool:
        if self.schedule.run_left and self._by_content is not None:
            return self._perform_ruled(self._by_content, effects)
        determinant = self.schedule.peek()
        if type(determinant) is Order:
            if determinant.input >= len(self._inputs):
                raise ReplayDivergence(
                    self.name, f"its log names input {determinant.input}, it has {len(self._inputs)}"
                )
            channel, count = self._inputs[determinant.input], determinant.count
            if channel.next - channel.delivered < count:
                if channel.read_out:
                    raise ReplayDivergence(
                        self.name,
                        f"from position {channel.delivered} on, its source gave {count} elements before, and gives "
                        f"{channel.queued} now",
                        "stops: its source lacks what it gave before; restore its input or its count, or begin a job",
                    )
                channel.starved = True
                return False
            channel.starved = False
            self.schedule.take(Order)
            self.replayed_elements += count
            self._perform_order(channel, count, effects)
        elif type(determinant) is Timer:
            self.schedule.take(Timer)
            self._emit(self.chain.fire(determinant.due_ns, self._services))
        elif type(determinant) is Barrier:
            self.schedule.take(Barrier)
            self._perform_barrier(determinant.epoch, determinant.final, effects)
        elif type(determinant) is Run and self._by_content is not None:
            self.schedule.take_run()
            return self._perform_ruled(self._by_content, effects)
        elif type(determinant) is Answer:
            self.schedule.take(Answer)
            self._perform_answer(determinant.operator, determinant.number, determinant.body)
        else:
            raise ReplayDivergence(
                self.name,
                f"epoch {self.schedule.epoch}: the log has an answer ({determinant.kind}) "
                "that the replay did not ask for",
            )
        return True

    def _go_live(self, effects: list[Effect], now_ns: int) -> None:
        for output in self._outputs:
            output.replayed()
        self._recovery.step(Step.REPLAYED, now_ns)
        effects.append(Phase("replayed", self.replayed_elements))
        effects.append(Phase("running"))
        self.chain.asked()  # a part of what is outstanding
        self._ask(self.chain.outstanding())

    def _ask(self, requests: Sequence[Request]) -> None:
        """Queue these requests to leave with the next bundles, never before what they depend on is stored (D4)."""
        if requests and not self.standing:
            self._asked.update(dict.fromkeys((each.operator, each.number) for each in requests))
            self._unasked += requests

    def _perform_live(self, effects: list[Effect]) -> bool:
        performed = self._perform_one(effects)
        if performed:
            self._ask(self.chain.asked())
        return performed

    def _perform_one(self, effects: list[Effect]) -> bool:
        if self.standing:
            return False
        due_ns = None if self.finished else self.chain.next_timer_ns()
        if due_ns is not None and due_ns <= self._live.wall_ns():
            reading = self._services.reading_ns()
            self.schedule.record(Timer(reading))
            self._emit(self.chain.fire(reading, self._services))
            return True
        partitions = self._channels.partitions
        if partitions and self.asked_epoch > self.schedule.epoch and not self.checkpointing.encoding:
            epoch = self.schedule.epoch + 1
            final = epoch == self.final_epoch
            self.schedule.record(Barrier(epoch, final))
            self._perform_barrier(epoch, final, effects)
            return True
        if self._answers:
            answer = self._answers.popleft()
            self.schedule.record(Answer(answer.operator, answer.number, answer.body))
            self._perform_answer(answer.operator, answer.number, answer.body)
            return True
        return self._perform_next_input(effects)

    def _perform_next_input(self, effects: list[Effect]) -> bool:
        if self.holding:
            return False
        rule, full = self._by_content, self.chain.full()
        if rule is not None and self._perform_ruled(rule, effects):
            return True
        picked = self._by_arrival.pick(full) if rule is None else rule.arrived(full)
        if picked is None:
            return False
        channel, count = picked
        if self._commutes and channel.has_records_only(count):
            self._perform_loosely(channel, count, effects)
        else:
            self.schedule.record_order(channel.ordinal, count)
            self._perform_order(channel, count, effects)
        return True

    def _perform_loosely(self, channel: InputQueue, count: int, effects: list[Effect]) -> None:
        """Perform an event that may be exchanged with earlier ones, as long as nothing shows its order.

        This covers few bytes: a replay waits for the elements of one input while those of the others fill their queues.
        """
        self.schedule.defer_order(channel.ordinal, count)
        self._loose_bytes += channel.head_bytes(count)
        self._perform_order(channel, count, effects)
        self.schedule.settle_order()
        if self._loose_bytes >= self._loose_bytes_max:
            self.schedule.log_run()
            self._loose_bytes = 0

    def _perform_order(self, channel: InputQueue, count: int, effects: list[Effect]) -> None:
        first = channel.delivered
        self._turn_elements += count
        try:
            chunks = channel.take(count)
        except PeerViolation as problem:
            raise ReplayDivergence(f"an operator before {self.name}", str(problem)) from problem
        if self._epoch_recording is not None:
            self._epoch_recording.delivered(channel.ordinal, chunks)
        if self._holdings.partial:
            self._holdings.depend(channel.delivered_depends())
        kind = chunks[0].kind
        if kind == batch.BARRIER:
            epoch = batch.stamp_of(chunks[0])
            if self.checkpointing.deliver(channel, epoch, self._channels.network, self.schedule.epoch):
                self._perform_barrier(epoch, batch.is_final(chunks[0]), effects)
        elif kind == batch.END:
            self._perform_end(channel.ordinal)
        else:
            self._emit(self.chain.deliver(channel.ordinal, chunks, first, self._services))

    def _perform_answer(self, operator: int, number: int, body: bytes) -> None:
        self._emit(self.chain.answer(operator, number, body, self._services))
        self._finish()

    def _perform_end(self, input: int) -> None:
        self._emit(self.chain.ended(input, self._services))
        self._finish()

    def _finish(self) -> None:
        """Finish the chain, once: after the event that ended the last input and left no request unanswered."""
        if self.finished or self.chain.waiting() or not all(channel.ended for channel in self._inputs):
            return
        self._emit(self.chain.finish(self._services))
        self.finished = True
        for output in self._outputs:
            output.put(batch.end())

    def _perform_barrier(self, epoch: int, final: bool, effects: list[Effect]) -> None:
        """Pass barrier `epoch`, which all inputs have reached, on, then freezes the state."""
        invariant(epoch == self.schedule.epoch + 1, "barriers come in order", task=self.name, barrier=epoch)
        self.flush_sinks(effects, force=True)
        effects += [StageRows(sink.id, epoch) for sink in self._channels.sinks.values() if sink.staging]
        effects += self.checkpointing.finish_encoding()
        for output in self._outputs:
            output.put(batch.barrier(epoch, final))
        if self._epoch_recording is not None:
            log = self._holdings.own.bytes_of(self.schedule.epoch)
            effects.append(WriteRecording(epoch, self._epoch_recording.parts(log)))
        self.schedule.advance(epoch)
        inputs = {c.id: (c.delivered, c.digest_at_barrier(epoch), c.ended) for c in self._inputs}
        outputs: dict[int, tuple[int, int]] = {o.id: (o.position, o.digest) for o in self._outputs}
        self.standing = final
        marks = {c.id: (c.mark, c.idle) for c in self._inputs if c.mark is not None or c.idle}
        self.checkpointing.freeze(Cut(epoch, inputs, outputs, self.schedule.last_ns, self.finished, marks))
        self.unchanged = True

    def _emit(self, outputs: list[Output]) -> None:
        """Pass on what the chain returned for an event."""
        self.unchanged = False
        if outputs and self._commutes and not self.schedule.replaying:
            self.schedule.log_run()  # what leaves depends on the state, and so on all events before
            self._loose_bytes = 0
        for ordinal, chunk in outputs:
            self._turn_bytes += chunk.size
            self._outputs[ordinal].put(chunk)

    def flush_sinks(self, effects: list[Effect], force: bool) -> None:
        """Write the rows that wait, if they are many or if `force`; after them, requests are sent.

        Reports the end of the task if these were its last rows.  A hot standby keeps them.
        """
        if self._recovery.state is State.SHADOWING:
            return
        for sink in self._channels.sinks.values():
            rows = sink.waiting
            if rows and (force or sink.full or (self.pace.reduced and rows >= self.pace.elements)):
                self._turn_elements = max(self._turn_elements, rows)
                holdings = self._holdings if self._logging else None
                bundle, origins = sink.bundle(holdings, self.incarnation, self.rollback)
                effects.append(WriteBundle(sink.id, bundle, [] if sink.requests else origins))
                self.wrote = self.wrote or not sink.requests
        if self._unasked and not any(sink.waiting for sink in self._channels.sinks.values() if sink.requests):
            effects.append(SendRequests(self._unasked))
            self._unasked = []
        if self.finished and not self.reported_finished and self._recovery.state is State.RUNNING:
            if not any(sink.waiting for sink in self._channels.sinks.values()):
                self._report_end(effects)

    def cover(self, epoch: int) -> None:
        """Record that all rows staged below barrier `epoch` are visible."""
        cut = self.checkpointing.cuts.get(epoch)
        self.covered = self.covered or (cut is not None and cut.finished)

    def _report_end(self, effects: list[Effect]) -> None:
        """Report the end, as all rows are in the store: "finished", or "staged" if they wait for a checkpoint."""
        if self.covered:
            self.reported_finished = True
            effects.append(Phase("finished"))
        elif not self.staged:
            self.staged = True
            effects.append(Phase("staged"))
