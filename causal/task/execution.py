"""The execution of a task: its schedule selects the next event, and its step performs the event (D1).

Replays and live tasks share one code path, and `_go_live` is the transition between them.
"""

from __future__ import annotations

from causal.channels.ends import Channels
from causal.config import JobConfig
from causal.cut import Cut
from causal.determinants import Answer
from causal.effects import Effect, Phase
from causal.events import ResponseReceived
from causal.logs.dissemination import Holdings
from causal.ports import Chain, Environment
from causal.recording_window import OFF
from causal.snapshot_files import SnapshotFile
from causal.task.batch_sizer import BatchSizer
from causal.task.checkpointing import Checkpointing
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.recording import Recording
from causal.task.recovery import Recovery, RecoveryStep, State
from causal.task.row_writing import RowWriting
from causal.task.schedule import Schedule
from causal.task.services import CausalServices
from causal.task.step import Step


class Execution:
    """Runs one task's chain.

    Args:
        cut: the position of the task at the checkpoint from which `chain` was restored.
        files: the snapshot files of that checkpoint.
    """

    def __init__(
        self, recovery: Recovery, config: JobConfig, chain: Chain, live: Environment, channels: Channels,
        holdings: Holdings, cursor: DeterminantCursor, cut: Cut, files: list[SnapshotFile], incarnation: int,
    ) -> None:  # fmt: skip
        self.chain = chain
        self.cursor = cursor
        interval_ns = int(config.checkpoint_interval_s * 1e9)
        self.checkpointing = checkpointing = Checkpointing(chain, cut, files, interval_ns)
        bytes_max = config.channel_window_bytes // 2
        self.pace = pace = BatchSizer(config.batch_elements_max, bytes_max, config.heartbeat_timeout_ms)
        services = CausalServices(cursor, live, recovery)
        self.schedule = Schedule(
            recovery, config, chain, live, channels, cursor, services, checkpointing, pace, cut
        )  # fmt: skip
        logging = config.guarantee == "causal"
        self.writing = RowWriting(
            recovery, channels, holdings, self.schedule, checkpointing, pace, logging, cut, incarnation
        )
        self.step = Step(
            recovery.task_name, chain, channels, holdings, cursor, self.schedule, services, checkpointing, self.writing,
            pace, Recording() if config.verify_replay else None, config.record != OFF and logging,
        )  # fmt: skip
        self._recovery = recovery
        self._outputs = channels.outputs
        self._elements_max = config.batch_elements_max

    def response(self, event: ResponseReceived) -> None:
        """Schedule an external response, unless this incarnation did not request it or has already received it."""
        if self.writing.answered(event.operator, event.number):
            self.schedule.answers.append(Answer(event.operator, event.number, event.body))

    def begin_turn(self, took_ns: int) -> None:
        """Record the duration of the previous turn, which determines the size of the next events."""
        self.pace.begin_turn(took_ns)
        self.checkpointing.took(took_ns)

    def perform(self, effects: list[Effect], small_max: int, replayed_max: int, now_ns: int) -> bool:
        """Perform one event, up to `small_max` small ones, or up to `replayed_max` of a replay; false if there is none.

        Small events that wait together, such as those of several inputs, share the costs of a turn and its frames. A
        replay delivers elements that are waiting in the queues, whose size is limited by credit. It stops at the
        maximum number of elements of one live event, so that the other work of the process is not delayed for longer.

        Raises:
            ReplayDivergence, OperatorFailed: as in `perform_next`.
        """
        cursor, schedule = self.cursor, self.schedule
        if self._recovery.state is State.RUNNING or not cursor.replaying:
            if not self.perform_next(effects, now_ns):
                return False
            left = small_max - 1
            while left > 0 and self.pace.small and schedule.may_continue and not self.checkpointing.encoding:
                if not self.perform_next(effects, now_ns):
                    break
                left -= 1
            return True
        stop = schedule.replayed_elements + (
            self.pace.elements if self.pace.reduced else max(self._elements_max, replayed_max)
        )
        left = replayed_max
        while left and self.perform_next(effects, now_ns):
            left -= 1
            if schedule.replayed_elements >= stop or not cursor.replaying:
                break
        return left < replayed_max

    def perform_next(self, effects: list[Effect], now_ns: int) -> bool:
        """Perform the next event; return false if none can be performed now.

        Raises:
            ReplayDivergence: the log contains an event that cannot occur here.
            OperatorFailed: user code raised an exception.
        """
        if self._recovery.state is State.REPLAYING and self.schedule.replayed:
            self._go_live(effects, now_ns)
        event = self.schedule.next()
        if event is None:
            return False
        self.step.perform(event, effects)
        if self.schedule.commutes:
            self.schedule.performed()
        if self._recovery.state is State.RUNNING:
            self.writing.ask(self.chain.asked())
        return True

    def _go_live(self, effects: list[Effect], now_ns: int) -> None:
        for output in self._outputs:
            output.replayed()
        self._recovery.step(RecoveryStep.REPLAYED, now_ns)
        self.step.replayed = (self.cursor.epoch, self.cursor.log.extent(self.cursor.epoch))
        effects.append(Phase("replayed", self.schedule.replayed_elements))
        effects.append(Phase("running"))
        self.chain.asked()  # discarded, because these requests are among the outstanding requests, which are sent next
        self.writing.ask(self.chain.outstanding())
