"""The schedule of a task, which determines the next event (D1).

While the log has entries, they determine the event. In a replay beyond the entries of the log, the rule of an ordered
task determines it. In the live task, the event is one that is due or has arrived, and it is logged before it is
performed. `causal.task.step` performs the event and does not know how it was chosen.
"""

from __future__ import annotations

from collections import deque

from causal.channels.ends import Channels
from causal.channels.flow import ALLOWANCE_BYTES_MIN
from causal.channels.queue import InputQueue
from causal.config import JobConfig
from causal.cut import Cut
from causal.determinants import Answer, Barrier, Order, Run, Timer
from causal.errors import ReplayDivergence
from causal.ports import Chain, Environment
from causal.task.batch_sizer import BatchSizer
from causal.task.checkpointing import Checkpointing
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.picking import ByArrival, ByContent
from causal.task.recovery import Recovery, State
from causal.task.services import CausalServices

ScheduledEvent = Order | Timer | Barrier | Answer
"""The events, in order: deliver an input's next elements; fire timers; pass a source's barrier; process a response."""

LOOSE_BYTES_MAX = ALLOWANCE_BYTES_MIN // 2
"""The maximum size of the events whose order is left open. While a replay waits for one input, the queues of the other
inputs must be able to hold the elements of these events."""


class Schedule:
    """The sequence of events of one incarnation of one task.

    Args:
        cursor: the cursor that reads and extends the task's log.
        cut: the position of the task at the restored checkpoint.

    Attributes:
        answers: the responses from the outside world that have arrived but are not scheduled yet.
        finished: whether all inputs have ended and the chain has emitted its last output; no timer fires after that.
        standing: whether the final barrier has been performed, after which no event is performed.
        holding: whether a source delivers no records until a checkpoint is complete.
        commutes: whether the order of events may be left open until output makes it visible; `show` and `performed` are
            called only if this is the case.
        replayed_elements: the number of replayed elements, which belong to events that were performed before.
    """

    def __init__(
        self, recovery: Recovery, config: JobConfig, chain: Chain, live: Environment, channels: Channels,
        cursor: DeterminantCursor, services: CausalServices, checkpointing: Checkpointing, pace: BatchSizer, cut: Cut,
    ) -> None:  # fmt: skip
        self.answers: deque[Answer] = deque()
        self.finished = cut.finished
        self.standing = False
        self.holding = False
        self.replayed_elements = 0
        self._asked_epoch = self._final_epoch = 0
        """The last requested checkpoint, and the checkpoint whose barrier is the final one, or 0 for none."""
        self._held_epoch = self._completed_epoch = cut.epoch
        self._recovery = recovery
        self._chain = chain
        self._environment = live
        self._inputs = channels.inputs
        self._outputs = channels.outputs
        self._reads = bool(channels.partitions)
        self._cursor = cursor
        self._services = services
        self._checkpointing = checkpointing
        self._by_arrival = ByArrival(channels.inputs, pace, config.channel_window_bytes // 2)
        self._by_content = ByContent(channels.inputs) if channels.ordered else None
        self.commutes = chain.commutes and self._by_content is None and not self._reads
        self._loose_bytes = 0
        """The total size in bytes of commuting events without an entry in the log."""
        self._loose_bytes_max = min(LOOSE_BYTES_MAX, config.channel_window_bytes // 4)

    # -- requests that change the next event -----------------------------------------------------------

    def request_checkpoint(self, epoch: int, final: bool, hold: bool) -> None:
        """Schedule the barrier of a checkpoint, at a source; no barrier follows a `final` one.

        Args:
            hold: whether the source delivers no records until the checkpoint is complete.
        """
        self._asked_epoch = max(self._asked_epoch, epoch)
        if final:
            self._final_epoch = epoch
        if hold:
            self._held_epoch = max(self._held_epoch, epoch)
            self.holding = self._held_epoch > self._completed_epoch

    def checkpoint_completed(self, epoch: int) -> None:
        """Record that checkpoint `epoch` is complete, so that a source that waited for it resumes."""
        self._completed_epoch = max(self._completed_epoch, epoch)
        self.holding = self._held_epoch > self._completed_epoch

    # -- the next event --------------------------------------------------------------------------------

    def next(self) -> ScheduledEvent | None:
        """Return the next event, or None if no event can be performed now.

        Raises:
            ReplayDivergence: the log contains an event that cannot occur here.
        """
        if self._recovery.state is State.RUNNING:
            return self._live()
        return self._logged() if self._cursor.replaying else self._between()

    def performed(self) -> None:
        """End the event that `next` returned; its order among earlier events stays open if no output has shown it.

        The order stays open only for a few bytes, because a replay may have to wait for the elements of one input while
        the elements of the other inputs fill their queues.
        """
        self._cursor.settle_order()
        if self._loose_bytes >= self._loose_bytes_max:
            self._log_run()

    def show(self) -> None:
        """Record that the event has produced output, which depends on the state and therefore on all earlier events."""
        if not self._cursor.replaying:
            self._log_run()

    def _log_run(self) -> None:
        self._cursor.log_run()
        self._loose_bytes = 0

    @property
    def replayed(self) -> bool:
        """Whether all events that have to be replayed have been performed.

        An ordered task's log does not show the task's progress, but the positions of the receivers of its output do.
        """
        if not self._cursor.exhausted():
            return False
        return self._by_content is None or not any(output.expecting for output in self._outputs)

    @property
    def may_continue(self) -> bool:
        """Whether another event may be performed now; false only if none can be until something arrives or is due.

        A task with empty queues can therefore become idle without a failed attempt, and a sink can write its rows.
        """
        if self._recovery.state is not State.RUNNING or self._by_content is not None or self.answers:
            return True
        if self._reads and self._asked_epoch > self._cursor.epoch:
            return True
        return any(channel.deliverable for channel in self._inputs)

    # -- in a replay -----------------------------------------------------------------------------------

    def _logged(self) -> ScheduledEvent | None:
        """Return the next event in the log, or None if its elements have not arrived yet."""
        cursor, rule = self._cursor, self._by_content
        if cursor.run_left and rule is not None:
            return self._ruled(rule)
        entry = cursor.peek()
        if type(entry) is Order:
            if not self._has_arrived(entry):
                return None
            self.replayed_elements += entry.count
            return cursor.take(Order)
        if isinstance(entry, (Timer, Barrier, Answer)):
            return cursor.take(type(entry))
        if type(entry) is Run and rule is not None:
            cursor.take_run()
            return self._ruled(rule)
        raise ReplayDivergence(
            cursor.task_name,
            f"epoch {cursor.epoch}: the log has an answer ({entry.kind}) that the replay did not ask for",
        )

    def _has_arrived(self, order: Order) -> bool:
        if order.input >= len(self._inputs):
            raise ReplayDivergence(
                self._cursor.task_name,
                f"its log names input {order.input}, but the number of its inputs is {len(self._inputs)}",
            )
        channel = self._inputs[order.input]
        channel.starved = channel.queued < order.count
        if channel.starved and channel.read_out:
            raise ReplayDivergence(
                self._cursor.task_name,
                f"from position {channel.delivered} on, its source returned {order.count} elements before and "
                f"returns {channel.queued} now",
                (
                    "stops: its source no longer returns elements that it returned before; restore its input or "
                    "its count, or start a new job"
                ),
            )
        return not channel.starved

    def _between(self) -> ScheduledEvent | None:
        """Return the event that the rule selects after the end of this epoch's log, or None if there is none."""
        cursor, rule = self._cursor, self._by_content
        exhausted = cursor.exhausted()
        if rule is None:
            if self._recovery.state is State.REPLAYING and not exhausted:
                raise ReplayDivergence(
                    cursor.task_name, f"its log has events after barrier {cursor.epoch + 1}, but the replay has none"
                )
            return None
        if exhausted and self._recovery.state is State.SHADOWING:
            return None
        cursor.complete = cursor.complete or not exhausted
        return self._ruled(rule)

    def _ruled(self, rule: ByContent) -> Order | None:
        """Return the event that the rule of an ordered task selects, or None if its elements have not arrived yet."""
        chain = self._chain
        picked = rule.ruled(chain.full())
        if picked is None:
            return None
        channel, count = picked
        if self._recovery.replays:
            self.replayed_elements += count
        self._cursor.rule(rule.choice or chain.waiting() or chain.next_timer_ns() is not None)
        return Order(channel.ordinal, count)

    # -- live ------------------------------------------------------------------------------------------

    def _live(self) -> ScheduledEvent | None:
        """Return and log the event that is due or has arrived, or None if there is none."""
        if self.standing:
            return None
        event: Timer | Barrier | Answer
        due_ns, epoch = None if self.finished else self._chain.next_timer_ns(), self._cursor.epoch + 1
        if due_ns is not None and due_ns <= self._environment.wall_ns():
            event = Timer(self._services.reading_ns())
        elif self._reads and self._asked_epoch >= epoch and not self._checkpointing.encoding:
            event = Barrier(epoch, epoch == self._final_epoch)
        elif self.answers:
            event = self.answers.popleft()
        else:
            return self._arrived()
        self._cursor.record(event)
        return event

    def _arrived(self) -> Order | None:
        if self.holding:
            return None
        rule, full = self._by_content, self._chain.full()
        if rule is not None and (ruled := self._ruled(rule)) is not None:
            return ruled
        picked = self._by_arrival.pick(full) if rule is None else rule.arrived(full)
        if picked is None:
            return None
        channel, count = picked
        if self.commutes and channel.has_records_only(count):
            self._defer(channel, count)
        else:
            self._cursor.record_order(channel.ordinal, count)
        return Order(channel.ordinal, count)

    def _defer(self, channel: InputQueue, count: int) -> None:
        """Begin an event that may be reordered with earlier ones as long as no output makes its order visible."""
        self._cursor.defer_order(channel.ordinal, count)
        self._loose_bytes += channel.head_bytes(count)
