"""One task performed again over consecutive epochs, from its own logs and the elements on its inputs (0054).

The events are performed by the same `Step` as live and in a recovery. What differs is what surrounds the task: its
elements come from its caller, its output is returned instead of sent, and nothing can be asked of the outside.
A replay therefore has no effects. The cut that it reaches at a barrier is compared with the recorded one, whose
positions and digests cover every element of every channel (D7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from causal.channels.ends import Channels
from causal.channels.partition import Partition
from causal.channels.queue import InputQueue
from causal.channels.rolling import RollingDigest
from causal.config import JobConfig
from causal.cut import Cut, Mark
from causal.determinants import Order
from causal.effects import Effect
from causal.errors import ReplayDivergence, invariant
from causal.ids import OUTSIDE, TaskIndex
from causal.logs.dissemination import Holdings
from causal.logs.log import LogDelta
from causal.ports import Chain, Environment
from causal.records.batch import BARRIER, ROWS, Chunk, pack_chunks
from causal.task.batch_sizer import BatchSizer
from causal.task.checkpointing import Checkpointing
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.recovery import Recovery, RecoveryStep
from causal.task.row_writing import RowWriting
from causal.task.schedule import Schedule, ScheduledEvent
from causal.task.services import CausalServices
from causal.task.step import Step
from causal.topology import Topology

_SEED_BYTES = 16


class Replayed(NamedTuple):
    """A chunk that an event has put on an output, and the position of its first element or row."""

    output: int
    position: int
    chunk: Chunk


class TaskReplay:
    """The replay of one task from a checkpoint.

    Args:
        chain: the task's chain, restored to `cut`.
        cut: the position of the task at the checkpoint.

    Attributes:
        inputs: the inputs, in the order of `Topology.inputs`.
        epoch: the epoch being replayed.
        reached: the cut at the last barrier that was passed, at first that of the checkpoint.
        ordered: whether the order of its input follows from content, so that the log does not contain it.
        begun_bytes: the place in the log of the epoch at which the event begins that `next` has returned.
        answered: called with each request that an operator makes during an event, and its recorded answer.
    """

    def __init__(self, topology: Topology, task: TaskIndex, config: JobConfig, chain: Chain, cut: Cut) -> None:
        operators = " > ".join(topology.tasks[task].operators)
        self.name = f"{topology.tasks[task].name} ({operators})" if operators else str(topology.tasks[task].name)
        self.chain = chain
        channels = Channels(topology, task, config, cut)
        self._names = {output.id: output.name for output in channels.outputs}
        self._outputs = [
            _Output(channel.id, channel.target == OUTSIDE, *cut.outputs.get(channel.id, (0, 0)))
            for channel in topology.outputs(task)
        ]
        cast("list[Any]", channels.outputs)[:] = self._outputs
        self.inputs: Sequence[InputQueue] = channels.inputs
        self.ordered = channels.ordered
        self._holdings = Holdings(topology, task, config.sharing_depth, cut.epoch)
        self._cursor = DeterminantCursor(self._holdings.own, cut.epoch, self.name)
        self._cursor.last_ns = cut.last_ns
        recovery = Recovery(self.name)
        recovery.step(RecoveryStep.STARTED, 0)
        recovery.step(RecoveryStep.COLLECTED, 0)
        self._barriers = _Barriers(chain, cut, [])
        live, pace = _Nothing(self), BatchSizer(config.batch_elements_max, 1, config.heartbeat_timeout_ms)
        self.answered: Callable[[Callable[[], bytes], bytes], None] | None = None
        services = _Services(self, self._cursor, live, recovery)
        self._schedule = schedule = Schedule(
            recovery, config, chain, live, channels, self._cursor, services, self._barriers, pace, cut
        )  # fmt: skip
        writing = RowWriting(recovery, channels, self._holdings, schedule, self._barriers, pace, True, cut, 0)
        self._step = Step(
            self.name, chain, channels, self._holdings, self._cursor, schedule, services, self._barriers, writing, pace,
            None,
        )  # fmt: skip
        self._reads = False
        self._finishes = True
        """Whether the log of this epoch ends with a barrier, and not where the task's process ended."""
        self._repairs = False
        self._event: ScheduledEvent | None = None
        self.begun_bytes = 0
        self._effects: list[Effect] = []

    @property
    def epoch(self) -> int:
        return self._cursor.epoch

    @property
    def reached(self) -> Cut:
        return self._barriers.cuts[self.epoch]

    @property
    def finished(self) -> bool:
        """Whether all input has ended and the task has emitted its last output."""
        return self._schedule.finished

    @property
    def logged(self) -> bool:
        """Whether the log of this epoch contains events that have not been performed."""
        return self._event is not None or self._cursor.replaying

    def begin_epoch(self, log: bytes, finishes: bool = True, repaired: bool = False) -> None:
        """Continue with the epoch after the last barrier, whose complete log is `log`.

        Args:
            finishes: whether a barrier ends the epoch; otherwise, it has no event after those in the log.
            repaired: whether the code may be another one, which does not raise the exception that ended the log; what
                the rest of that event asks for is the last clock reading, and random numbers from a fixed seed.
        """
        self._finishes = finishes
        self._repairs = repaired and not finishes
        own = self._holdings.own
        invariant(not own.extent(self.epoch), "an epoch begins once", task=self.name, epoch=self.epoch)
        own.truncate(self.epoch)
        own.merge(LogDelta(own.task, self.epoch, 0, log))
        self._cursor.complete = not self._repairs

    # Input.

    def accept(self, input: int, chunks: Sequence[Chunk]) -> None:
        """Add the next elements of an input."""
        channel = self.inputs[input]
        channel.accept_chunks(channel.next, chunks)

    def read(self, input: int, records: list[Any], ended: bool, marks: Sequence[Mark] = ()) -> None:
        """Add the next records of a source's partition, as its reader returns them."""
        partition = self.inputs[input]
        invariant(isinstance(partition, Partition), "a partition is read", task=self.name, input=input)
        self._reads = True
        cast(Partition, partition).answered(partition.next, records, 0, ended, marks)

    def waits_for(self) -> Sequence[tuple[int, int]]:
        """Return (input, elements) for each input on which the next event waits; empty if no element is missing."""
        if self._is_over():
            return ()
        if self._cursor.replaying:
            starved = [channel for channel in self.inputs if channel.starved]
            if starved:
                order = cast(Any, self._cursor.peek())
                return [(channel.ordinal, order.count - channel.queued) for channel in starved]
        if not self.ordered:
            return ()
        return [(c.ordinal, 1) for c in self.inputs if not (c.blocked or c.idle or c.read_out or c.head_chunk_count)]

    # Events.

    def next(self) -> ScheduledEvent | None:
        """Return the next event, which `perform` will perform, or None if its elements have not been added yet.

        Raises:
            ReplayDivergence: the log contains an event that cannot occur here.
        """
        if self._event is None and not self._is_over():
            begun_bytes = self._cursor.place
            self._event = self._schedule.next()
            if self._event is not None:
                self.begun_bytes = begun_bytes
        return self._event

    def _is_over(self) -> bool:
        """Return whether an epoch that no barrier ends has no further event.

        With `delivery="ordered"` the log does not contain the order, so further events may follow from the input.
        """
        return not self._finishes and not self.ordered and not self._cursor.replaying

    def stands_at(self, recorded: Cut) -> bool:
        """Return whether the task has come to the input positions of a cut."""
        return _places(self._step.cut()) == _places(recorded)

    @property
    def beyond(self) -> bool:
        """Whether an event is performed beyond the exception that ended the log."""
        return self._repairs and not self._cursor.replaying

    @property
    def last_ns(self) -> int:
        """The last clock reading of the task."""
        return self._cursor.last_ns

    def shorten(self, count: int) -> None:
        """Limit the next event to its first elements, in a copy of this process that is discarded afterwards.

        A batch has no meaning of its own, so the output of its first elements is what they would cause alone.
        """
        if type(self._event) is Order:
            self._event.count = min(self._event.count, count)

    def perform(self) -> Sequence[Replayed]:
        """Perform the event that `next` has returned, and return its output in order.

        Raises:
            ReplayDivergence: the event cannot occur here.
            OperatorFailed: user code raised an exception that it did not raise in the task.
        """
        event, self._event = self._event, None
        invariant(event is not None, "an event is looked at before it is performed", task=self.name)
        self._step.perform(cast(ScheduledEvent, event), self._effects)
        self._effects.clear()
        self.chain.asked()  # the answers are in the log
        return [
            Replayed(ordinal, position, chunk)
            for ordinal, output in enumerate(self._outputs)
            for position, chunk in output.taken()
        ]

    def absent(self, what: str) -> ReplayDivergence:
        """Return the error for a value that the log does not have."""
        return ReplayDivergence(self.name, f"epoch {self.epoch}: the replay asks for {what} after the end of its log")

    def verify(self, recorded: Cut) -> None:
        """Compare the cut at the barrier that was just passed, or the position at the end of an unfinished epoch, with
        the one that the task itself has written.

        Raises:
            ReplayDivergence: they differ; the first difference is named.
        """
        reached, epoch = (self.reached, self.epoch - 1) if self._finishes else (self._step.cut(), self.epoch)
        marked = self._reads and self._finishes  # a task may end with marks that it has read ahead
        for channel, stood in recorded.outputs.items():
            if reached.outputs.get(channel) != tuple(stood):
                raise ReplayDivergence(
                    self.name,
                    f"epoch {epoch}: when it was performed again from its own log, its output "
                    f"{self._names.get(channel, channel)} differed",
                )
        for what, own, its in (
            ("input positions", _places(reached), _places(recorded)),
            ("watermarks", dict(reached.marks), dict(recorded.marks)),
            ("source marks", dict(reached.places), dict((recorded if marked else reached).places)),
            ("end", reached.finished, recorded.finished),
            ("last clock reading", reached.last_ns, recorded.last_ns),
        ):
            if own != its:
                raise ReplayDivergence(
                    self.name, f"epoch {epoch}: when it was performed again from its own log, its {what} differed"
                )


def _places(cut: Cut) -> dict[int, tuple[int, bool]]:
    """Return the position of each input; its digest is that of the sender's output."""
    return {channel: (position, ended) for channel, (position, _, ended) in cut.inputs.items()}


class _Output:
    """An output of a replayed task: numbers and digests its elements as the task did, and keeps them until taken."""

    expecting = False

    def __init__(self, id: int, outside: bool, position: int, digest: int) -> None:
        self.id = id
        self.position = position
        self._outside = outside
        self._digest = RollingDigest(digest)
        self._chunks: list[tuple[int, Chunk]] = []

    @property
    def digest(self) -> int:
        return self._digest.value

    def put(self, chunk: Chunk) -> None:
        if self._outside:
            if chunk.kind == ROWS:
                self._digest.feed(chunk.body)
        else:
            self._digest.feed(pack_chunks((chunk,)))
        if chunk.kind == BARRIER:
            self._digest.close()
        if chunk.kind == ROWS or not self._outside:
            self._chunks.append((self.position, chunk))
            self.position += chunk.count

    def taken(self) -> Sequence[tuple[int, Chunk]]:
        taken, self._chunks = self._chunks, []
        return taken


class _Barriers(Checkpointing):
    """The barriers of a replay: state is frozen, as this is part of what operators may notice, and not written."""

    def freeze(self, cut: Cut) -> None:
        self.cuts = {cut.epoch: cut}
        self._chain.snapshot(False)


class _Services(CausalServices):
    """The services of a replay, which report what operators ask and are answered."""

    __slots__ = ("_replay",)

    def __init__(self, replay: TaskReplay, cursor: DeterminantCursor, live: Environment, recovery: Recovery) -> None:
        super().__init__(cursor, live, recovery)
        self._replay = replay

    def call(self, ask: Callable[[], bytes]) -> bytes:
        self._check()
        return self._reported(ask, super().call(ask))

    def user(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        self._check()
        return self._reported(ask, super().user(kind, ask))

    def _check(self) -> None:
        if self._replay.beyond:
            raise self._replay.absent("an answer of the outside world")

    def _reported(self, ask: Callable[[], bytes], answer: bytes) -> bytes:
        if self._replay.answered is not None:
            self._replay.answered(ask, answer)
        return answer


class _Nothing:
    """The environment of a replay, in which every live value is in the log."""

    def __init__(self, replay: TaskReplay) -> None:
        self._replay = replay

    def wall_ns(self) -> int:
        if self._replay.beyond:
            return self._replay.last_ns
        raise self._replay.absent("the time")

    def entropy(self) -> bytes:
        if self._replay.beyond:
            return bytes(_SEED_BYTES)
        raise self._replay.absent("random bytes")
