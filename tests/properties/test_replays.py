"""Every example of the oracles is recorded, with its crashes, and replayed: each cut and each row is the same again.

So every operator, delivery, grouping into cells, timer, window, call, table and join is replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import pytest

from causal.cut import Cut
from causal.effects import Effect
from causal.events import Event
from causal.ids import OUTSIDE, ChannelId, TaskIndex
from causal.records.batch import Chunk
from causal.snapshot_files import SnapshotFile
from causal.task.cone import ConeReplay, Elements, cone
from causal.task.replay import TaskReplay
from causal.topology import Channel
from operators.replay.watched import Arriving, watch
from operators.testing import running
from operators.testing.process import Process
from operators.testing.world import World
from tests.members import sample
from tests.oracles.all import ORACLES
from tests.oracles.frame import examine

LATEST_NS = 1 << 62
CASES = [case for name in sorted(ORACLES) for case in sample(product([name], range(100, 140)), 1)]


class Epoch(NamedTuple):
    log: bytes
    reached: Cut | None
    failure: str = ""


class RecordedWorld(World):
    """A run that keeps its logs, cuts and snapshots, and is replayed when it has ended."""

    replayed = 0
    """The epochs of tasks that all replays have verified."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.epochs: dict[tuple[int, int], Epoch] = {}
        self.files: dict[tuple[int, int], Sequence[SnapshotFile]] = {}

    def handled(self, process: Process, event: Event) -> Sequence[Effect]:
        before = process.protocol.cursor.epoch
        effects = super().handled(process, event)
        task = process.protocol
        for epoch in range(before, task.cursor.epoch):
            reached = task.execution.checkpointing.cuts[epoch + 1]
            self.epochs[process.index, epoch] = Epoch(task.holdings.own.bytes_of(epoch), reached)
        return effects

    def reported(self, process: Process, kind: str, facts: dict[str, Any]) -> None:
        if kind == "snapshot":
            self.files[process.index, facts["epoch"]] = [tuple(file) for file in facts["files"]]
        super().reported(process, kind, facts)

    def run(self) -> None:
        super().run()
        for process in self.processes.values():
            own, epoch = process.protocol.holdings.own, process.protocol.cursor.epoch
            self.epochs[process.index, epoch] = Epoch(own.bytes_of(epoch), None)
        tasks = [task.index for task in self.topology.tasks]
        self._replay(tasks, 0)
        for start in sorted({1, self.complete // 2, self.complete} & set(range(1, self.complete + 1))):
            self._replay([tasks[-1 - start % len(tasks)]], start)

    def _replay(self, tasks: Sequence[TaskIndex], start: int) -> None:
        """Replay tasks and all upstream of them from a checkpoint to the end."""
        replays: dict[TaskIndex, TaskReplay] = {}
        arrived: list[Arriving] = []
        for task in cone(self.topology, tasks):
            chain = self.plan.chain(task)
            cut = Cut()
            for name, _, _ in self.files[task, start] if start else ():
                parts, _, _ = self.snapshots[task, name]
                cut = Cut.unpack(parts[0])
                chain.restore(parts[1:])
            if start % 2:
                watch(chain, "", arrived.append)
            replays[task] = TaskReplay(self.topology, task, self.config, chain, cut)
        replay = ConeReplay(self.topology, replays, self._log, self._elements)
        rows: dict[int, list[bytes]] = {}

        def emitted(channel: Channel, position: int, chunk: Chunk) -> None:
            if channel.target == OUTSIDE:
                rows.setdefault(channel.id, []).append(bytes(chunk.body))

        replay.emitted = emitted
        last = min(process.protocol.cursor.epoch for process in self.processes.values())
        while replay.epoch < last:
            replay.perform_epoch()
        RecordedWorld.replayed += replay.verified
        if start == 0 and all(process.protocol.cursor.epoch == last for process in self.processes.values()):
            replay.perform_epoch()
            for channel, store in self.stores.items():
                assert b"".join(rows.get(channel, ())) == store.rows

    def _log(self, task: TaskIndex, epoch: int) -> Epoch:
        return self.epochs[task, epoch]

    def _elements(self, channel: ChannelId, position: int, count: int) -> Elements:
        read = self.partitions[channel].read(position, count, LATEST_NS)
        assert read is not None, "the job has read more than there is"
        return Elements(*read)


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_what_the_oracles_run_is_the_same_in_a_replay(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "World", RecordedWorld)
    examine(name, seed)
