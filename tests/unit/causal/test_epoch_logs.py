"""The logs that tasks write for a recording: whole epochs, whatever died; a hot standby writes those it withheld."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import WriteEpochLog, WriteRecording, WriteSnapshot
from causal.task.performer import DiskEffect
from causal.task.recording import read_recording
from tests.simulation.clockwork import MS
from tests.simulation.scenario import Fault, plain
from tests.simulation.shell import SimulatedDisk
from tests.simulation.world import Simulation

KINDS = ("clock", "random", "call", "timer", "ask")


class Recorded(Simulation):
    """A run whose tasks are recorded, and what their disks were asked to write, by (task, incarnation, epoch)."""

    def __init__(self, seed: int, hot: bool = False, **settings: object) -> None:
        killed = tuple(Fault("kill", at_ms * MS, task, 1) for at_ms, task in ((420, 1), (520, 2)))
        scenario = plain(seed, (1, 2, 1, 1), shortcut=True, records=60, kinds=KINDS, checkpoint_ms=60, faults=killed)
        super().__init__(replace(scenario, hot=hot))
        self.config: JobConfig = replace(self.config, record="1h", **settings)  # type: ignore[arg-type]
        self.observer.end = lambda status, reason: None  # type: ignore[method-assign]  # no standby checks any epoch
        self.logs: dict[tuple[int, int, int], WriteEpochLog] = {}
        self.recordings: dict[tuple[int, int, int], bytes] = {}
        self.cuts: dict[tuple[int, int, int], Cut] = {}

    def run(self) -> None:
        ask = SimulatedDisk.ask

        def kept(disk: SimulatedDisk, effect: DiskEffect) -> None:
            member = disk._process.membership
            task = member.task or 0, member.incarnation
            if isinstance(effect, WriteEpochLog):
                self.logs[*task, effect.epoch] = effect
            elif isinstance(effect, WriteRecording):
                self.recordings[*task, effect.epoch - 1] = read_recording(effect.parts).log
            else:
                if isinstance(effect, WriteSnapshot):
                    self.cuts[*task, effect.epoch - 1] = Cut.unpack(effect.parts[0])
                ask(disk, effect)

        with patch.object(SimulatedDisk, "ask", kept):
            super().run()


@pytest.fixture(scope="module")
def world() -> Recorded:
    recorded = Recorded(7, verify_replay=True)
    recorded.run()
    assert recorded.observer.durable >= 3 and recorded.applied
    return recorded


def assert_each_snapshot_has_its_log(world: Recorded) -> None:
    assert world.cuts
    for place, cut in world.cuts.items():
        assert world.logs[place].reached == cut and cut.epoch == place[2] + 1


def test_each_log_is_that_of_the_whole_epoch(world: Recorded) -> None:
    assert {place: each.log for place, each in world.logs.items()} == world.recordings
    assert sum(len(each.log) for each in world.logs.values()) > 100
    assert_each_snapshot_has_its_log(world)
    for task in range(len(world.topology.tasks)):
        epochs = {epoch for index, _, epoch in world.logs if index == task}
        assert epochs >= set(range(world.observer.durable))


def test_a_recovered_task_writes_the_whole_epoch_again_and_says_what_it_replayed(world: Recorded) -> None:
    replayed = {place: each for place, each in world.logs.items() if each.replayed}
    assert replayed and all(incarnation > 1 for _, incarnation, _ in replayed)
    for (task, incarnation, epoch), each in replayed.items():
        assert each.replayed <= len(each.log)
        before = world.logs.get((task, incarnation - 1, epoch))
        if before is not None:
            assert before.log[: each.replayed] == each.log[: each.replayed]
    assert not any(each.replayed for (_, incarnation, _), each in world.logs.items() if incarnation == 1)


@pytest.mark.parametrize("seed", range(3))
def test_a_hot_standby_that_takes_over_writes_the_logs_that_it_withheld(seed: int) -> None:
    world = Recorded(seed, hot=True)
    world.run()
    assert world.observer.durable >= 3 and any(incarnation > 1 for _, incarnation, _ in world.logs)
    assert_each_snapshot_has_its_log(world)


def test_a_job_that_is_not_recorded_writes_no_logs() -> None:
    silent = Recorded(7)
    silent.config = replace(silent.config, record="off")
    silent.run()
    assert silent.observer.durable >= 3 and not silent.logs
