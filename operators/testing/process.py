"""An incarnation of a task in a test, with its disk, partitions and outside world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from causal.config import JobConfig
from causal.effects import MergeSnapshots, WriteSnapshot
from causal.events import Event, ResponseReceived, SnapshotsMerged, SnapshotWritten
from causal.ports import Chain, Output, Request, Services, SnapshotJob
from causal.records import batch
from causal.records.batch import Chunk
from causal.snapshot_files import SnapshotFile, merged_name, written_name
from causal.task.performer import DiskEffect
from operators.engine.merged import MergedParts
from operators.kinds.process.outside_calls import askers_of
from operators.source import Read
from operators.testing import cluster
from operators.testing.cluster import Segments
from operators.testing.inputs import Partition
from operators.testing.stable_files import StableEffect, StableFiles

_OF_RECORDS = (batch.RECORDS, batch.LISTED)


class CountedChain:
    """A chain, and the number of records that it has received since the job began, counting replayed records once.

    Attributes:
        received: the number of records so far.
        frozen: the value of `received` at the last barrier.
    """

    def __init__(self, chain: Chain, received: int) -> None:
        self.received = self.frozen = received
        self._chain = chain

    def deliver(self, input: int, chunks: Sequence[Chunk], first: int, services: Services) -> list[Output]:
        """Deliver to the chain and count the records."""
        self.received += sum([chunk.count for chunk in chunks if chunk.kind in _OF_RECORDS])
        return self._chain.deliver(input, chunks, first, services)

    def snapshot(self, full: bool, behind: str = "") -> SnapshotJob:
        """Take a snapshot of the chain and remember the count."""
        self.frozen = self.received
        return self._chain.snapshot(full, behind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chain, name)


@dataclass(slots=True, kw_only=True)
class Process(cluster.Process):
    """A running task.

    Attributes:
        looked_ns: the time at which the task was last found to have nothing to do.
    """

    chain: CountedChain
    looked_ns: int = -1


class Surroundings(Protocol):
    """The part of a world that a process's disks, readers and calls use.

    Attributes:
        partitions: the partitions by channel.
        snapshots: (task, file name) → its parts, its digest, and the number of records received by then.
        later: the steps that have become possible but have not been performed yet.
    """

    chance: Random
    now_ns: int
    partitions: dict[int, Partition]
    snapshots: dict[tuple[int, str], tuple[Sequence[bytes], str, int]]
    stable: StableFiles
    config: JobConfig
    later: list[Callable[[], None]]

    def feed(self, process: Process, event: Event) -> None:
        """Make a process handle an event."""
        ...


class MemoryDisk(Segments):
    """The disk of one task; each answer becomes one of the steps that the world may perform next."""

    def __init__(self, world: Surroundings, process: Process) -> None:
        super().__init__(lambda event: world.later.append(lambda: world.feed(process, event)))
        self._world = world
        self._process = process

    def ask(self, effect: DiskEffect) -> None:
        """Perform a disk effect."""
        if isinstance(effect, StableEffect):
            answer = self._world.stable.perform(effect, *self._process.life)
            if answer is not None:
                self.answer(answer)
            return
        if isinstance(effect, MergeSnapshots):
            self._merge(effect)
            return
        if not isinstance(effect, WriteSnapshot):
            super().ask(effect)
            return
        name = written_name("", effect.epoch, self._process.incarnation)
        self.answer(SnapshotWritten(effect.epoch, self._kept(name, effect.parts, self._process.chain.frozen)))

    def _kept(self, name: str, parts: Sequence[bytes], received: int) -> SnapshotFile:
        self._world.snapshots[self._process.index, name] = parts, name, received
        return name, sum(map(len, parts)), name

    def _merge(self, effect: MergeSnapshots) -> None:
        """Merge snapshots at a later time, unless the task has died by then."""
        index, life, snapshots = self._process.index, self._process.incarnation, self._world.snapshots

        def merge() -> None:
            sources = [snapshots[index, name][0] for name, _, _ in effect.sources]
            rules, groups = effect.rules or {}, self._world.config.key_groups
            parts = list(MergedParts(sources, rules, groups, complete=effect.first == 0))
            received = snapshots[index, effect.sources[-1][0]][2]
            file = self._kept(merged_name("", effect.first, effect.last, life), parts, received)
            self._world.feed(self._process, SnapshotsMerged(effect.sources, file))

        self._world.later.append(merge)


class MemoryReader:
    """A partition reader for which chance decides how many of the available elements a read returns."""

    def __init__(self, world: Surroundings, channel: int) -> None:
        self._world = world
        self._partition = world.partitions[channel]

    def read(self, position: int, count_max: int) -> Read | None:
        """Return elements from `position`, or None if none is available yet."""
        count = self._world.chance.randint(1, count_max)
        answer = self._partition.read(position, count, self._world.now_ns)
        return None if answer is None else Read(answer[0], 0, answer[1])

    def ready_in_s(self, position: int) -> float:
        """Return 0, because the world knows when to ask again."""
        return 0.0

    def completed(self, position: int) -> None:
        """Do nothing, because a partition keeps everything."""

    def close(self) -> None:
        """Do nothing, because a partition outlives its readers."""


class CalledAtOnce:
    """An executor that calls functions immediately. Responses arrive in any order, and time-outs do not occur, because
    they would require real time.
    """

    def __init__(self, world: Surroundings, process: Process) -> None:
        self._world = world
        self._process = process

    def ask(self, requests: Sequence[Request]) -> None:
        """Call the function of each request, and retry after a failure as often as the call allows."""
        askers, later = askers_of(self._process.chain), self._world.later
        for request in requests:
            asker = askers[request.operator]
            well, body = asker.perform(request.body)
            for _ in range(asker.retries):
                if well:
                    break
                well, body = asker.perform(request.body)
            answered = ResponseReceived(request.operator, request.number, body)
            place = self._world.chance.randint(0, len(later))
            later.insert(place, lambda event=answered: self._world.feed(self._process, event))  # type: ignore[misc]
