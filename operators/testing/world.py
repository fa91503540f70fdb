"""The world of a test: all tasks of a pipeline in this process, with simulated links, stores, disk, time and crashes.

The seed determines everything that can vary: which task has the next turn, which frame arrives first, when a checkpoint
is taken, and how soon a dead task is replaced. Frames are never lost, and there is no supervisor: frames that a dead
task had sent still arrive, its upstream tasks are notified, and a new incarnation loads the last complete checkpoint
and replays. The clock stands still while any task has work; then it moves to the next time for which a task is waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, cast

from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import Effect
from causal.errors import DeterminantsLost, InvariantViolation
from causal.events import (
    CheckpointCompleted,
    CheckpointRequested,
    Event,
    Started,
    Turn,
)
from causal.ids import OUTSIDE, TaskIndex
from causal.ports import Chain, SinkStore
from causal.snapshot_files import SnapshotFile
from causal.task.performer import Requests
from causal.task.task import TaskProtocol
from operators.engine.plan import Plan
from operators.records.seconds import ns_of_seconds
from operators.testing.cluster import Cluster
from operators.testing.commuting import ReorderedChain
from operators.testing.inputs import Partition
from operators.testing.outside import MemoryStore
from operators.testing.process import CalledAtOnce, CountedChain, MemoryDisk, MemoryReader, Process
from operators.testing.stable_files import StableFiles

_KEYS_AT_ONCE = 1000


class World(Cluster[Process]):
    """The tasks of one test, with their links, stores and clock.

    Args:
        partitions: the partitions of each source.
        crash: task → the numbers of received records at which it dies, in ascending order.
        checkpoint_every: the number of records read between two checkpoints; 0: none; None: the seed decides.

    Attributes:
        recoveries: the number of crashes from which the tasks have recovered.
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
        super().__init__(plan.topology, config)
        self.plan = plan
        self.chance = Random(seed)
        self.now_ns = ns_of_seconds(clock_s)
        self.crash = {name: list(counts) for name, counts in crash.items()}
        self.recoveries = 0
        self.logged: Counter[str] = Counter()
        """The number of determinant bytes that dead incarnations wrote, by kind."""
        self.stores: dict[int, MemoryStore] = {}
        self.partitions: dict[int, Partition] = {}
        self.acked: dict[int, tuple[SnapshotFile, ...]] = {}
        """The tasks that have acknowledged the checkpoint in progress, with the files that restore it."""
        self.snapshots: dict[tuple[int, str], tuple[Sequence[bytes], str, int]] = {}
        """The parts of each snapshot, its digest, and the number of records received by then, by (task, file name)."""
        self.stable = StableFiles()
        self.later: list[Callable[[], None]] = []
        """The steps that have become possible but have not been performed yet, such as the disk's answers."""
        self._files: dict[int, tuple[SnapshotFile, ...]] = {}
        self._every = checkpoint_every
        self._next_checkpoint = self._interval()
        self._dying: list[Process] = []
        for channel in self.topology.channels:
            if channel.source == OUTSIDE:
                subtask = self.topology.subtasks.tasks[self.topology.subtask_channel(channel).target]
                self.partitions[channel.id] = partitions[subtask.operators[0]][channel.partition]
            elif channel.target == OUTSIDE:
                self.stores[channel.id] = MemoryStore(self.topology.account(channel), config.run)

    # -- disks, stores and readers ---------------------------------------------------------------------

    def disk(self, process: Process) -> MemoryDisk:
        """Return the disk of a task."""
        return MemoryDisk(self, process)

    def store(self, process: Process, channel: int) -> SinkStore:
        """Return the store of a sink task; the store outlives the task."""
        return self.stores[channel]

    def reader(self, process: Process, channel: int) -> MemoryReader:
        """Return a reader of a partition."""
        return MemoryReader(self, channel)

    def requests(self, process: Process) -> Requests:
        """Return an executor for the functions of `call`."""
        return CalledAtOnce(self, process)

    def reported(self, process: Process, kind: str, facts: dict[str, Any]) -> None:
        """Process a report; the last acknowledgement of a checkpoint makes it complete.

        Raises:
            DeterminantsLost: the task has lost determinants, and the test kit has no rollback.
        """
        if kind == "snapshot":
            self._acknowledged(process.index, facts["epoch"], facts["files"])
        elif facts.get("phase") == "lost":
            raise DeterminantsLost(
                f"{process.protocol.name}: determinants are lost, and the test kit has no rollback; use full "
                "sharing depth"
            )

    def entropy(self) -> bytes:
        """Return 16 bytes derived from the seed."""
        return self.chance.randbytes(16)

    # -- the run of the world ------------------------------------------------------------------------

    def begin(self) -> None:
        """Start every task."""
        for index in self.incarnations:
            self._create(index)
        for process in list(self.processes.values()):
            self.introduce(process)
        for process in list(self.processes.values()):
            self.feed(process, Started())

    def run(self) -> None:
        """Run until every task has finished.

        Raises:
            InvariantViolation: no step is possible although some tasks have not finished.
            CausalError: a task cannot continue; the errors are those of a job.
        """
        while not self.finished:
            if not self.step() and not self.pass_time():
                waiting = [p.protocol.name for p in self.processes.values() if not p.protocol.finished]
                raise InvariantViolation(
                    f"the pipeline makes no progress; these tasks have not finished: {', '.join(waiting)}"
                )

    def settle(self) -> None:
        """Run until no task has work at the current time."""
        while self.step():
            continue

    @property
    def finished(self) -> bool:
        """Whether all input has been processed and all rows have been stored."""
        if len(self.processes) != len(self.incarnations):
            return False
        for process in self.processes.values():  # checked at every step, so this stops at the first unfinished task
            if not process.protocol.finished:
                return False
        return all(
            p.protocol.reported_finished for p in self.processes.values() if self.topology.is_sink(TaskIndex(p.index))
        )

    def step(self) -> bool:
        """Perform one of the steps that are possible now; return False if there is none."""
        possible = self._possible()
        if not possible:
            return False
        self.chance.choice(possible)()
        read = sum([partition.taken for partition in self.partitions.values()])
        if self._next_checkpoint is not None and read >= self._next_checkpoint and self.asked == self.complete:
            self.checkpoint()
            self._next_checkpoint = read + (self._interval() or 0)
        return True

    def _possible(self) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = []
        for ends, frames in self.links.items():
            if frames:
                steps.append(lambda ends=ends: self.deliver(ends))  # type: ignore[misc]
        for process in self.processes.values():
            if not process.protocol.idle or self._due(process):
                steps.append(lambda process=process: self._turn(process))  # type: ignore[misc]
        for process, moments in self._moments_of_reads():
            if moments and min(moments) <= self.now_ns:
                steps.append(lambda process=process: self.read_again(process))  # type: ignore[misc]
        if self.later:
            steps.append(lambda: self.later.pop(0)())
        for index in self.incarnations:
            if self.current(index) is None:
                steps.append(lambda index=index: self._promote(index))  # type: ignore[misc]
        return steps

    def _moments_of_reads(self) -> list[tuple[Process, list[int]]]:
        """Return the processes that wait for elements, with the times at which those become available."""
        waiting = []
        for process in self.processes.values():
            reads = process.performer.pending.items()
            if not reads:
                continue
            due = [self.partitions[channel].due_ns(read.position) for channel, read in reads]
            waiting.append((process, [at for at in due if at is not None]))
        return waiting

    def _due(self, process: Process) -> bool:
        if process.looked_ns >= self.now_ns:
            return False
        due_ns = process.protocol.next_deadline_ns(self.now_ns)
        return due_ns is not None and due_ns <= self.now_ns

    def _turn(self, process: Process) -> None:
        self.feed(process, Turn())
        if process.protocol.idle:
            process.looked_ns = self.now_ns

    def pass_time(self, until_ns: int | None = None) -> bool:
        """Move the clock to the next time for which a task is waiting, at most `until_ns`; return whether it moved."""
        moments = [p.protocol.next_deadline_ns(self.now_ns) for p in self.processes.values()]
        moments += [at for _, reads in self._moments_of_reads() for at in reads]
        moments.append(until_ns)
        due = [at for at in moments if at is not None and at > self.now_ns]
        if not due:
            return False
        self.now_ns = min(due)
        return True

    # -- tasks ---------------------------------------------------------------------------------------

    def _create(self, index: int) -> Process:
        """Create the next incarnation of a task from the last complete checkpoint."""
        incarnation = self.incarnations[index] + 1
        files = list(self._files.get(index, ()))
        chain, cut, received = self._restored(index, files)
        if chain.commutes:
            chain = cast(
                Chain,
                ReorderedChain(
                    chain,
                    lambda: self._restored(index, files)[0],
                    partial(self.plan.chain, index),
                    self.plan.nodes(index),
                ),
            )
        counted = CountedChain(chain, received)
        protocol = TaskProtocol(
            self.topology, TaskIndex(index), incarnation, self.config, cast(Chain, counted), self, cut, files, _unheard
        )
        process = Process(index=index, incarnation=incarnation, protocol=protocol, chain=counted)
        self.add(process)
        return process

    def _restored(self, index: int, files: Sequence[SnapshotFile]) -> tuple[Chain, Cut, int]:
        """Return a task's chain as restored from these files, its cut, and the number of records received."""
        cut, received = Cut(), 0
        chain = self.plan.chain(index)
        for name, _, _ in files:
            parts, _, received = self.snapshots[index, name]
            cut = Cut.unpack(parts[0])
            chain.restore(parts[1:])
        return chain, cut, received

    def _promote(self, index: int) -> None:
        process = self._create(index)
        self.recoveries += 1
        self.introduce(process)
        self.feed(process, Started())
        if self.asked > self.complete and self.topology.is_source(TaskIndex(index)):
            self.feed(process, CheckpointRequested(self.asked))

    def die(self, index: int) -> None:
        """Kill a task; frames that it has sent still arrive, but frames on their way to it do not."""
        process = self.processes[index, self.incarnations[index]]
        self.forget(process)
        self.logged.update(process.protocol.counters()["determinant_bytes"])
        if process in self._dying:
            self._dying.remove(process)
        for ends in [ends for ends in self.links if ends[:2] == process.life]:
            while self.links[ends]:
                self.deliver(ends)
            del self.links[ends]
        self.acked.pop(index, None)
        self.announce_death(process)

    # -- one step of one task ------------------------------------------------------------------------

    def handled(self, process: Process, event: Event) -> Sequence[Effect]:
        """Make a task handle an event; schedule its death if it has received enough records for its next crash."""
        if process in self._dying:
            return ()
        effects = super().handled(process, event)
        process.looked_ns = -1
        counts = self.crash.get(process.protocol.name)
        if counts and process.chain.received >= counts[0]:
            counts.pop(0)
            self._dying.append(process)
        return effects

    def settled(self) -> None:
        """Kill the tasks that are scheduled to crash."""
        while self._dying:
            self.die(self._dying[0].index)

    # -- checkpoints ---------------------------------------------------------------------------------

    def _interval(self) -> int | None:
        if self._every == 0:
            return None
        return self.chance.randint(2, 12) if self._every is None else self._every

    def checkpoint(self) -> None:
        """Ask the sources for the next checkpoint if none is in progress."""
        if self.asked > self.complete:
            return
        self.asked = self.complete + 1
        for process in self.sources():
            self.feed(process, CheckpointRequested(self.asked))

    def check_state(self) -> None:
        """Encode the state of every live task as a checkpoint would, after the end of the run.

        Raises:
            CausalError: a value cannot be encoded.
        """
        for process in self.processes.values():
            job = process.chain.snapshot(full=True)
            while not job.step(_KEYS_AT_ONCE):
                continue
            list(job.parts())  # the parts are joined when they are read

    def _acknowledged(self, index: int, epoch: int, files: Sequence[SnapshotFile]) -> None:
        """Record that a task's state at barrier `epoch` has been saved; the last task completes the checkpoint."""
        if epoch != self.asked or epoch == self.complete:
            return
        self.acked[index] = tuple((path, size, digest) for path, size, digest in files)
        if len(self.acked) == len(self.incarnations):
            self.complete, self._files = epoch, dict(self.acked)
            self.acked.clear()
            for process in list(self.processes.values()):
                self.feed(process, CheckpointCompleted(epoch))


def _unheard(line: str) -> None:
    """Ignore a task's report of unexpected frames: links lose nothing here, so such frames come from dead tasks."""
