"""The world of a test: all tasks of a pipeline in this process, their links, stores and disk, time, chance and death.

Everything that could vary follows from the seed: whose turn it is, which frame arrives first, when a checkpoint is
taken, how soon a dead task is replaced.  No frame is lost and there is no supervisor: a task that dies hands over what
it had sent, its upstream is notified, a fresh incarnation takes the last complete checkpoint and replays.  The clock
stands still while any task has something to do; then it moves to the next moment for which one waits.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import cast

from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import InvariantViolation
from causal.events import (
    CheckpointCompleted,
    CheckpointRequested,
    Event,
    FrameReceived,
    PeerDown,
    PeerUp,
    SourceRead,
    Started,
    Turn,
)
from causal.ids import OUTSIDE, TaskIndex
from causal.ports import Chain
from causal.task.checkpointing import SnapshotFile
from causal.task.task import TaskProtocol
from operators.engine.plan import Plan
from operators.records.seconds import ns_of_seconds
from operators.testing.effects import perform
from operators.testing.inputs import Partition
from operators.testing.outside import MemoryStore
from operators.testing.process import CountedChain, Process

Ends = tuple[int, int, int, int]
"""The two ends of a link: (task, incarnation) that sends, (task, incarnation) that receives."""


class World:
    """The tasks of one test, their links, stores and clock.

    Args:
        partitions: by source.
        crash: task → the counts of received records at which it dies, ascending.
        checkpoint_every: records read between two checkpoints; 0: none; None: the seed says when.

    Attributes:
        now_ns: the wall clock, and the monotonic one.
        recoveries: how many crashes have been recovered from.
    """

    def __init__(
        self,
        plan: Plan,
        config: JobConfig,
        partitions: Mapping[str, list[Partition]],
        crash: Mapping[str, list[int]],
        seed: int,
        clock_s: float,
        checkpoint_every: int | None,
    ) -> None:
        self.plan = plan
        self.config = config
        self.topology = plan.topology
        self.chance = Random(seed)
        self.now_ns = ns_of_seconds(clock_s)
        self.crash = {name: list(counts) for name, counts in crash.items()}
        self.recoveries = 0
        self.logged: Counter[str] = Counter()
        """The bytes of determinants that dead incarnations wrote, by kind."""
        self.processes: dict[int, Process] = {}
        self.stores: dict[int, MemoryStore] = {}
        self.partitions: dict[int, Partition] = {}
        self.pending: dict[int, tuple[int, int]] = {}
        """The reads that wait, by channel: position, count."""
        self.acked: dict[int, tuple[SnapshotFile, ...]] = {}
        """The tasks that have acknowledged the checkpoint under way, with the files that restore it."""
        self.snapshots: dict[tuple[int, int], tuple[list[bytes], int]] = {}
        """The parts of each snapshot and the count of records received until then, by (task, epoch)."""
        self.later: list[Callable[[], None]] = []
        """The operations that the disk has still to do."""
        self._links: dict[Ends, deque[list[bytes]]] = {}
        self._incarnations = dict.fromkeys(range(len(self.topology.tasks)), 0)
        self._complete = self._asked = 0
        self._files: dict[int, tuple[SnapshotFile, ...]] = {}
        self._every = checkpoint_every
        self._next_checkpoint = self._interval()
        self._inbox: deque[tuple[Process, Event]] = deque()
        self._handling = False
        self._dying: list[int] = []
        self._reader_of: dict[int, int] = {channel.id: channel.target for channel in self.topology.channels}
        for channel in self.topology.channels:
            if channel.source == OUTSIDE:
                name = self.topology.tasks[channel.target].operators[0]
                self.partitions[channel.id] = partitions[name][channel.partition]
            elif channel.target == OUTSIDE:
                self.stores[channel.id] = MemoryStore(self.topology.tasks[channel.source].name, config.run)

    # -- Live ----------------------------------------------------------------------------------------

    def wall_ns(self) -> int:
        """The clock that a live task reads."""
        return self.now_ns

    def entropy(self) -> bytes:
        """Returns 16 bytes out of the seed."""
        return self.chance.randbytes(16)

    # -- the course of things ------------------------------------------------------------------------

    def begin(self) -> None:
        """Start every task."""
        for index in self._incarnations:
            self._create(index)
        for process in list(self.processes.values()):
            self._introduce(process)
        for process in list(self.processes.values()):
            self.handle(process, Started())

    def run(self) -> None:
        """Run until every task has finished.

        Raises:
            InvariantViolation: nothing can happen any more and not all have.
            CausalError: a task cannot continue, as in a job.
        """
        while not self.finished:
            if not self.step() and not self.pass_time():
                waiting = [p.protocol.name for p in self.processes.values() if not p.protocol.finished]
                raise InvariantViolation(f"the pipeline stands still; not finished are {', '.join(waiting)}")

    def settle(self) -> None:
        """Run until no task has anything to do at this moment."""
        while self.step():
            continue

    @property
    def finished(self) -> bool:
        """Whether all input has been processed, and all rows are there."""
        return len(self.processes) == len(self._incarnations) and all(
            [process.protocol.finished for process in self.processes.values()]
            + [
                p.protocol.reported_finished
                for p in self.processes.values()
                if self.topology.is_sink(TaskIndex(p.index))
            ]
        )

    def step(self) -> bool:
        """Perform one of the steps that are possible now; false if there is none."""
        possible = self._possible()
        if not possible:
            return False
        self.chance.choice(possible)()
        read = sum([partition.taken for partition in self.partitions.values()])
        if self._next_checkpoint is not None and read >= self._next_checkpoint and self._asked == self._complete:
            self.checkpoint()
            self._next_checkpoint = read + (self._interval() or 0)
        return True

    def _possible(self) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = []
        for ends, frames in self._links.items():
            if frames:
                steps.append(lambda ends=ends: self._deliver(ends))  # type: ignore[misc]
        for process in self.processes.values():
            if not process.protocol.idle or self._due(process):
                steps.append(lambda process=process: self._turn(process))  # type: ignore[misc]
        for channel, (position, _) in self.pending.items():
            due_ns = self.partitions[channel].due_ns(position)
            if due_ns is not None and due_ns <= self.now_ns:
                steps.append(lambda channel=channel: self._read(channel))  # type: ignore[misc]
        if self.later:
            steps.append(lambda: self.later.pop(0)())
        for index in self._incarnations:
            if index not in self.processes:
                steps.append(lambda index=index: self._promote(index))  # type: ignore[misc]
        return steps

    def _due(self, process: Process) -> bool:
        due_ns = process.protocol.next_deadline_ns(self.now_ns)
        return due_ns is not None and due_ns <= self.now_ns and process.looked_ns < self.now_ns

    def _turn(self, process: Process) -> None:
        self.handle(process, Turn())
        if process.protocol.idle:
            process.looked_ns = self.now_ns

    def pass_time(self, until_ns: int | None = None) -> bool:
        """Move the clock to the next moment for which a task waits, `until_ns` at most; false if there is none."""
        moments = [p.protocol.next_deadline_ns(self.now_ns) for p in self.processes.values()]
        moments += [self.partitions[channel].due_ns(position) for channel, (position, _) in self.pending.items()]
        moments.append(until_ns)
        due = [at for at in moments if at is not None and at > self.now_ns]
        if not due:
            return False
        self.now_ns = min(due)
        return True

    # -- tasks ---------------------------------------------------------------------------------------

    def _create(self, index: int) -> Process:
        """Create the next incarnation of a task, from the last complete checkpoint."""
        incarnation = self._incarnations[index] = self._incarnations[index] + 1
        cut, received = Cut(), 0
        chain = self.plan.chain(index)
        files = list(self._files.get(index, ()))
        for name, _, _ in files:
            parts, received = self.snapshots[index, int(name)]
            cut = Cut.unpack(parts[0])
            chain.restore(parts[1:])
        counted = CountedChain(chain, received)
        protocol = TaskProtocol(
            self.topology, TaskIndex(index), incarnation, self.config, cast(Chain, counted), self, cut, files, _unheard
        )
        process = self.processes[index] = Process(index, incarnation, protocol, counted)
        return process

    def _promote(self, index: int) -> None:
        process = self._create(index)
        self.recoveries += 1
        self._introduce(process)
        self.handle(process, Started())
        if self._asked > self._complete and self.topology.is_source(TaskIndex(index)):
            self.handle(process, CheckpointRequested(self._asked))

    def _introduce(self, process: Process) -> None:
        for other in self.topology.upstream(TaskIndex(process.index)):
            self._introduce_to(self.processes.get(other), process)
            self._introduce_to(process, self.processes.get(other))
        for other in self.topology.downstream(TaskIndex(process.index)):
            self._introduce_to(process, self.processes.get(other))
            self._introduce_to(self.processes.get(other), process)

    def _introduce_to(self, who: Process | None, peer: Process | None) -> None:
        if who is not None and peer is not None and who.dialled.get(peer.index) != peer.incarnation:
            who.dialled[peer.index] = peer.incarnation
            self.handle(who, PeerUp(peer.index, peer.incarnation))

    def die(self, index: int) -> None:
        """Kill a task; what it had sent still arrives, what was on its way to it does not."""
        process = self.processes.pop(index)
        self.logged.update(process.protocol.counters()["determinant_bytes"])
        if index in self._dying:
            self._dying.remove(index)
        for ends in [ends for ends in self._links if ends[:2] == (index, process.incarnation)]:
            while self._links[ends]:
                self._deliver(ends)
        for ends in [ends for ends in self._links if index in (ends[0], ends[2])]:
            del self._links[ends]
        for channel in [c.id for c in self.topology.inputs(TaskIndex(index))]:
            self.pending.pop(channel, None)
        self.acked.pop(index, None)
        for other in self.topology.upstream(TaskIndex(index)):
            if other in self.processes:
                self.handle(self.processes[other], PeerDown(TaskIndex(index), process.incarnation))

    # -- one step of one task ------------------------------------------------------------------------

    def handle(self, process: Process, event: Event) -> None:
        """Let a task handle an event and perform its effects, in order, then the events that follow from them."""
        self._inbox.append((process, event))
        if self._handling:
            return
        self._handling = True
        try:
            while self._inbox:
                target, next_event = self._inbox.popleft()
                if self.processes.get(target.index) is target and target.index not in self._dying:
                    for effect in target.protocol.handle(next_event, self.now_ns):
                        perform(self, target, effect)
                    target.looked_ns = -1
                    self._reap(target)
        finally:
            self._handling = False
        while self._dying:
            self.die(self._dying[0])

    def _reap(self, process: Process) -> None:
        """Kill the task if it has received the records at which it is to crash."""
        counts = self.crash.get(process.protocol.name)
        if counts and process.chain.received >= counts[0]:
            counts.pop(0)
            self._dying.append(process.index)

    # -- links ---------------------------------------------------------------------------------------

    def transmit(self, process: Process, target: int, incarnation: int, parts: list[bytes]) -> None:
        """Send a frame; one to a dead incarnation is dropped."""
        there = self.processes.get(target)
        if there is not None and there.incarnation == incarnation:
            self._links.setdefault((process.index, process.incarnation, target, incarnation), deque()).append(parts)

    def _deliver(self, ends: Ends) -> None:
        parts = self._links[ends].popleft()
        source, incarnation, target, _ = ends
        upstream = self.topology.upstream(TaskIndex(target))
        link = f"{source}/{incarnation}".encode() if source in upstream else b""
        process = self.processes.get(target)
        if process is not None:
            self.handle(process, FrameReceived(link, parts))

    # -- sources -------------------------------------------------------------------------------------

    def read(self, process: Process, channel: int, position: int, count: int) -> None:
        """Answer a read of a partition, or keep it until there is something."""
        answer = self.partitions[channel].read(position, self.chance.randint(1, count), self.now_ns)
        if answer is None:
            self.pending[channel] = (position, count)
        else:
            self.handle(process, SourceRead(channel, position, answer[0], 0, answer[1]))

    def _read(self, channel: int) -> None:
        position, count = self.pending.pop(channel)
        self.read(self.processes[self._reader_of[channel]], channel, position, count)

    # -- checkpoints ---------------------------------------------------------------------------------

    def _interval(self) -> int | None:
        if self._every == 0:
            return None
        return self.chance.randint(2, 12) if self._every is None else self._every

    def checkpoint(self) -> None:
        """Ask the sources for the next checkpoint, if none is under way."""
        if self._asked > self._complete:
            return
        self._asked = self._complete + 1
        for process in list(self.processes.values()):
            if self.topology.is_source(TaskIndex(process.index)):
                self.handle(process, CheckpointRequested(self._asked))

    def acknowledged(self, index: int, epoch: int, files: Sequence[SnapshotFile]) -> None:
        """Note that the state of a task at barrier `epoch` is kept; with the last task the checkpoint is complete."""
        if epoch != self._asked or epoch == self._complete:
            return
        self.acked[index] = tuple(files)
        if len(self.acked) == len(self._incarnations):
            self._complete, self._files = epoch, dict(self.acked)
            self.acked.clear()
            for process in list(self.processes.values()):
                self.handle(process, CheckpointCompleted(epoch))


def _unheard(line: str) -> None:
    """Ignore a task's report of frames that do not fit: links lose nothing here, so they are those of dead tasks."""
