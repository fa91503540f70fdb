"""The replay of several tasks, each with all tasks upstream of it, epoch by epoch and event by event (0054).

A task performs an event only when a task downstream waits for its elements, so little waits between two tasks, and an
event of a task is reached without performing what does not lead to it. At the end of each epoch, every task has passed
the barrier, and every channel has been compared with the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from causal.cut import Cut, Mark
from causal.errors import OperatorFailed, ReplayDivergence, invariant
from causal.ids import OUTSIDE, ChannelId, TaskIndex
from causal.records.batch import Chunk
from causal.task.replay import Replayed, TaskReplay
from causal.task.schedule import ScheduledEvent
from causal.topology import Channel, Topology


class RecordedEpoch(Protocol):
    """One epoch of a task, as it was recorded."""

    @property
    def log(self) -> bytes:
        """The task's own determinant log."""

    @property
    def reached(self) -> Cut | None:
        """The cut at the barrier that ended the epoch; None if it is not known.

        If the task's process ended before the barrier, it is the task's position then, with the number of the epoch.
        """

    @property
    def failure(self) -> str:
        """The exception with which the task ended the epoch; empty if there was none."""


def _is_unfinished(recorded: RecordedEpoch, epoch: int) -> bool:
    return recorded.reached is None or recorded.reached.epoch == epoch


class Elements(NamedTuple):
    """Records of a partition, whether it ends after them, and their marks, as in `operators.source.Read`."""

    records: Any
    ended: bool
    marks: Sequence[Mark] = ()


ReadElements = Callable[[ChannelId, int, int], Elements]
"""Returns elements of a channel's partition, from a position, up to a number: at least one, or the end."""


def cone(topology: Topology, tasks: Sequence[TaskIndex]) -> tuple[TaskIndex, ...]:
    """Return these tasks and all tasks upstream of them, in topological order."""
    return tuple(sorted({*tasks, *(each for task in tasks for each in topology.ancestors(task))}))


class ConeReplay:
    """The replay of some tasks and of everything upstream of them.

    Args:
        replays: the tasks, in topological order, all from the same checkpoint.
        log: returns a recorded epoch of a task.
        read: reads the input of the job.

    Attributes:
        epoch: the epoch that is replayed next, or is being replayed.
        events: the number of events performed.
        verified: the number of channels that have been compared at a barrier, each once per barrier.
        failed: the exceptions with which tasks have ended as recorded, by task.
        emitted: called with each chunk that a task puts on a channel, and the position of its first element.
        verifies: whether the tasks are compared with the recording when they pass a barrier.
        repaired: whether the code may be another one, which does not raise a recorded exception again.
    """

    def __init__(
        self,
        topology: Topology,
        replays: Mapping[TaskIndex, TaskReplay],
        log: Callable[[TaskIndex, int], RecordedEpoch],
        read: ReadElements,
    ) -> None:
        for task in replays:
            invariant(topology.ancestors(task).keys() <= replays.keys(), "a cone has all upstream tasks", task=task)
        self.replays = replays
        self.epoch = next(iter(replays.values())).epoch
        self.events = self.verified = 0
        self.failed: dict[TaskIndex, BaseException] = {}
        self.emitted: Callable[[Channel, int, Chunk], None] | None = None
        self.verifies = True
        self.repaired = False
        self._topology = topology
        self._log = log
        self._read = read
        self._outputs = {task: topology.outputs(task) for task in replays}
        self._inputs = {channel.id: place for task in replays for place, channel in enumerate(topology.inputs(task))}
        self._recorded: dict[TaskIndex, RecordedEpoch] = {}
        self._left: list[TaskIndex] = []
        """The tasks that have not performed the epoch to its end, upstream first."""
        self._waiting: list[TaskIndex] = []
        """The task that is to perform an event, above the tasks downstream that wait for it."""

    def begin_epoch(self) -> None:
        """Begin with the epoch after the last barrier."""
        invariant(not self._left, "the last epoch has been performed", epoch=self.epoch)
        self._left = [task for task, replay in self.replays.items() if replay.epoch == self.epoch]
        self._recorded = {task: self._log(task, self.epoch) for task in self._left}
        for task, recorded in self._recorded.items():
            repaired = self.repaired and bool(recorded.failure)
            self.replays[task].begin_epoch(recorded.log, not _is_unfinished(recorded, self.epoch), repaired)

    def next(self) -> tuple[TaskIndex, ScheduledEvent] | None:
        """Return the next event and its task, or None once the epoch is over.

        Raises:
            ReplayDivergence: a task cannot perform what its log says.
        """
        while self._left:
            if not self._waiting:
                self._waiting.append(self._left[-1])
            task = self._waiting[-1]
            event = self.replays[task].next() if task in self._left else None
            if event is not None:
                return task, event
            if task not in self._left:
                self._waiting.pop()
            else:
                self._supply(task)
        self._end_epoch()
        return None

    def _end_epoch(self) -> None:
        """End the epoch if all tasks have performed it."""
        if not self._left and self._recorded:
            self._recorded = {}
            self._waiting.clear()
            self.epoch += 1

    def perform(self) -> Sequence[Replayed]:
        """Perform the event that `next` has returned, and return its output.

        Raises:
            ReplayDivergence, OperatorFailed: as for `TaskReplay.perform`; also if the task has passed the barrier and
                its output differs from the recording. An exception that the recording has is noted in `failed`.
        """
        task = self._waiting[-1]
        replay = self.replays[task]
        try:
            outputs = replay.perform()
        except (OperatorFailed, SystemExit) as failure:
            if not self._recorded[task].failure or replay.logged:
                raise
            self.failed[task] = failure
            self._left.remove(task)
            outputs = ()
        self.events += 1
        for output, position, chunk in outputs:
            channel = self._outputs[task][output]
            if self.emitted is not None:
                self.emitted(channel, position, chunk)
            target = self.replays.get(channel.target)
            if target is not None:
                target.accept(self._inputs[channel.id], (chunk,))
        if replay.epoch > self.epoch and task in self._left:
            self._pass(task)
        if len(self._waiting) > 1:  # the task that waits for this one looks whether it can continue
            self._waiting.pop()
        self._end_epoch()
        return outputs

    def perform_epoch(self) -> None:
        """Perform the next epoch, and verify it.

        Raises:
            ReplayDivergence, OperatorFailed: as for `perform`.
        """
        self.begin_epoch()
        while self.next() is not None:
            self.perform()

    def _pass(self, task: TaskIndex) -> None:
        """Compare the outputs of a task that has passed the barrier, or has come to the end of its log."""
        self._left.remove(task)
        replay, recorded = self.replays[task], self._recorded[task]
        reached = recorded.reached
        if reached is None or not self.verifies:
            return
        # An ordered task that was ended early is performed up to the end of its input, as far as its sender got.
        if not (replay.ordered and _is_unfinished(recorded, self.epoch)) or replay.stands_at(reached):
            replay.verify(reached)
            self.verified += len(reached.outputs)

    def _supply(self, task: TaskIndex) -> None:
        """Read the elements for which a task waits, or let the task that emits them perform its next event.

        Raises:
            ReplayDivergence: nothing can emit them.
        """
        replay, inputs, recorded = self.replays[task], self._topology.inputs(task), self._recorded[task]
        unfinished, wanted = _is_unfinished(recorded, self.epoch), replay.waits_for()
        for input, count in wanted:
            channel = inputs[input]
            if channel.source == OUTSIDE:
                position = replay.inputs[input].next
                if unfinished and recorded.reached is not None:
                    count = min(count, recorded.reached.inputs[channel.id][0] - position)
                if count > 0:
                    replay.read(input, *self._read(channel.id, position, count))
                    return
            elif channel.source in self._left:
                self._waiting.append(channel.source)
                return
        if unfinished and (replay.ordered or not wanted):
            if recorded.failure and self.repaired:
                self._left.remove(task)
                return
            if recorded.failure:
                raise ReplayDivergence(
                    replay.name, f"epoch {self.epoch}: it failed when it was recorded ({recorded.failure}), and not now"
                )
            self._pass(task)
            return
        raise ReplayDivergence(
            replay.name,
            f"epoch {self.epoch}: the replay asks for more input than the task had"
            if wanted
            else f"epoch {self.epoch}: its log ends before the barrier",
        )
