"""Every task of a simulated job, performed again from its own logs and the source positions, reaches the same cuts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import pytest

from causal.cut import Cut
from causal.errors import CausalError, ReplayDivergence
from causal.ids import OUTSIDE, ChannelId, TaskIndex
from causal.records.batch import ROWS, Chunk
from causal.task.cone import ConeReplay, Elements, cone
from causal.task.recovery import State
from causal.task.replay import TaskReplay
from causal.topology import Channel
from tests.members import sample
from tests.simulation.clockwork import MS
from tests.simulation.scenario import OTHER_CODE, Fault, Scenario, draw, draw_cells, draw_hot, plain
from tests.simulation.world import Simulation

SEEDS = sample(range(120), 8)


class Epoch(NamedTuple):
    log: bytes
    reached: Cut | None
    failure: str = ""


class Recording(Simulation):
    """A run whose logs and cuts are kept, of each epoch that a complete checkpoint ended."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.cuts: dict[int, dict[int, Cut]] = {}
        completed = self.observer.completed

        def noted(epoch: int) -> None:
            completed(epoch)
            self.cuts[epoch] = dict(self.observer._cuts)

        self.observer.completed = noted  # type: ignore[method-assign]
        self.tail: dict[tuple[TaskIndex, int], Epoch] = {}
        """The epochs of tasks after the last complete one when the job was stopped."""

    @property
    def last(self) -> int:
        return max(self.cuts, default=0)

    def stop_after(self, steps: int) -> None:
        """Run the job for some steps, and then until all tasks perform new events, and stop it there."""
        self.begin()
        while self.ended is None and (steps > 0 or not self._all_run()):
            steps -= 1
            assert self.clock.step()
        for process in self.tasks_running() if self._all_run() else ():
            task = process.task
            assert task is not None
            index = next(each.index for each in self.topology.tasks if each.name == task.name)
            task.execution.step._keeps_logs = True
            ended = task.unfinished_log()
            assert ended is not None
            self.tail[index, ended.epoch] = Epoch(ended.log, ended.reached)
            for epoch in range(self.last, ended.epoch):
                cut = task.execution.checkpointing.cuts[epoch + 1]
                self.tail[index, epoch] = Epoch(task.holdings.own.bytes_of(epoch), cut)

    def _all_run(self) -> bool:
        tasks = [each.task for each in self.tasks_running()]
        running = {task.name for task in tasks if task is not None and task.recovery.state is State.RUNNING}
        return len(tasks) == len(running) == len(self.topology.tasks)

    def epoch(self, task: TaskIndex, epoch: int) -> Epoch:
        if epoch >= self.last:
            return self.tail[task, epoch]
        return Epoch(self.observer._complete.get((task, epoch), b""), self.cuts[epoch + 1][task])

    def elements(self, channel: ChannelId, position: int, count: int) -> Elements:
        partition = self.partitions[channel]
        stop = min(position + count, partition.records)
        records = [partition._make(partition.number, place) for place in range(position, stop)]
        return Elements(records, position + count > partition.records)

    def replay(self, tasks: Sequence[TaskIndex], version: int = 0) -> ConeReplay:
        replays = {
            task: TaskReplay(self.topology, task, self.config, self.job.chain(task, _refused, version), Cut())
            for task in tasks
        }
        return ConeReplay(self.topology, replays, self.epoch, self.elements)


def _refused() -> bytes:
    raise AssertionError("a replay asks the outside world")


def _recorded(scenario: Scenario) -> Recording | None:
    """Return a run of this scenario, without what makes its logs those of other code; None if nothing is logged."""
    if scenario.guarantee != "causal":
        return None
    faults = tuple(fault for fault in scenario.faults if fault.kind not in (OTHER_CODE, "newer_run"))
    world = Recording(replace(scenario, faults=faults))
    world.run()
    return world if world.ended == (0, "") or world.last else None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("drawn", [draw, draw_cells, draw_hot])
def test_every_task_replayed_from_its_logs_reaches_the_recorded_cuts(drawn: Any, seed: int) -> None:
    world = _recorded(drawn(seed))
    if world is None:
        return
    replay = world.replay([task.index for task in world.topology.tasks])
    rows: Counter[int] = Counter()

    def emitted(channel: Channel, position: int, chunk: Chunk) -> None:
        if chunk.kind == ROWS and channel.target == OUTSIDE:
            assert position == rows[channel.id]
            rows[channel.id] += chunk.count

    replay.emitted = emitted
    while replay.epoch < world.last:
        replay.perform_epoch()
    channels = sum(len(cut.outputs) for cuts in world.cuts.values() for cut in cuts.values())
    assert replay.verified == channels
    last = world.cuts.get(world.last, {})
    assert +rows == {c: at for cut in last.values() for c, (at, _) in cut.outputs.items()
                     if at and world.topology.channels[c].target == OUTSIDE}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("drawn", [draw, draw_cells, draw_hot])
def test_every_task_is_replayed_up_to_the_event_at_which_its_job_was_stopped(drawn: Any, seed: int) -> None:
    scenario = drawn(seed)
    if scenario.guarantee != "causal":
        return
    faults = tuple(fault for fault in scenario.faults if fault.kind not in (OTHER_CODE, "newer_run"))
    world = Recording(replace(scenario, faults=faults))
    world.stop_after(int(10 ** Random(seed).uniform(2, 3.6)))
    if not world.tail:
        return
    replay = world.replay([task.index for task in world.topology.tasks])
    ends = {task: max(epoch for each, epoch in world.tail if each == task) for task in replay.replays}
    while replay.epoch <= max(ends.values()):
        replay.perform_epoch()
    assert {task: each.epoch for task, each in replay.replays.items()} == ends
    whole = sum(len(cut.outputs) for cuts in world.cuts.values() for cut in cuts.values())
    tail = {key: len(each.reached.outputs) for key, each in world.tail.items() if each.reached is not None}
    sure = sum(count for (task, _), count in tail.items() if not replay.replays[task].ordered)
    assert whole + sure <= replay.verified <= whole + sum(tail.values()), "an ordered task may be performed further"


@pytest.fixture(scope="module")
def world() -> Recording:
    """A job with every determinant, and a failure of a task in its middle."""
    kinds, killed = ("clock", "random", "call", "timer", "ask"), Fault("kill", 300 * MS, 2, 1)
    scenario = plain(7, (1, 2, 1, 1), shortcut=True, records=60, kinds=kinds, checkpoint_ms=60, faults=(killed,))
    recording = Recording(scenario)
    recording.run()
    assert recording.last >= 3 and recording.applied
    return recording


def test_a_cone_performs_nothing_that_does_not_lead_to_its_task(world: Recording) -> None:
    first, last = world.topology.tasks[1].index, world.topology.tasks[-1].index
    assert cone(world.topology, [first]) == (0, first)
    assert cone(world.topology, [last]) == tuple(task.index for task in world.topology.tasks)
    replay = world.replay(cone(world.topology, [first]))
    while replay.epoch < world.last:
        replay.perform_epoch()
    assert replay.verified == world.last * sum(len(world.topology.outputs(task)) for task in replay.replays)


def test_a_replay_can_stop_before_each_event(world: Recording) -> None:
    replay = world.replay([task.index for task in world.topology.tasks])
    replay.begin_epoch()
    stopped = 0
    while (following := replay.next()) is not None:
        assert replay.next() == following and replay.events == stopped
        replay.perform()
        stopped += 1
    assert stopped == replay.events > 0 and replay.epoch == 1


def test_other_code_is_a_divergence(world: Recording) -> None:
    replay = world.replay([task.index for task in world.topology.tasks], version=1)
    with pytest.raises(ReplayDivergence, match=r"epoch \d+: when it was performed again .* output l\d.* differed"):
        while replay.epoch < world.last:
            replay.perform_epoch()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda each: each._replace(log=each.log[:-4]), "log|ends|asks"),
        (lambda each: each._replace(log=each.log + each.log), "log|asks|differed"),
        (lambda each: each._replace(reached=replace(each.reached, last_ns=1)), "last clock reading differed"),
        (lambda each: each._replace(reached=replace(each.reached, finished=None)), "its end differed"),
        (lambda each: each._replace(reached=replace(each.reached, marks={0: (5, False)})), "watermarks differed"),
        (lambda each: each._replace(reached=replace(each.reached, places={0: 5})), "source marks differed"),
        (lambda each: each._replace(reached=replace(each.reached, inputs={})), "input positions differed"),
    ],
)
def test_a_recording_that_does_not_fit_is_named(world: Recording, changed: Any, said: str) -> None:
    replay = world.replay([TaskIndex(0)])
    epoch = replay._log
    replay._log = lambda task, at: changed(epoch(task, at)) if at == 2 else epoch(task, at)
    with pytest.raises(CausalError, match=said):
        while replay.epoch < world.last:
            replay.perform_epoch()
    assert replay.epoch == 2


def test_a_source_that_has_fewer_elements_now_is_named(world: Recording) -> None:
    replay = world.replay([TaskIndex(0)])
    replay._read = lambda channel, position, count: Elements([], True)  # the end alone
    with pytest.raises(ReplayDivergence, match="did not ask for|its source returned"):
        while replay.epoch < world.last:
            replay.perform_epoch()


def test_an_epoch_that_was_not_recorded_to_its_end_is_replayed_as_far_as_its_logs_go(world: Recording) -> None:
    replay = world.replay([task.index for task in world.topology.tasks])
    whole = replay._log
    replay._log = lambda task, epoch: Epoch(whole(task, epoch).log if task < 2 else b"", None)
    replay.perform_epoch()
    assert replay.events > 0 and replay.verified == 0 and replay.epoch == 1
    assert [each.epoch for each in replay.replays.values()] == [1, 1, 0, 0, 0]
