"""The seeded world with a worse network, zombies and a small memory: still nothing lost, doubled or contradicted."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import pytest

from benchmarks.harness.graphs import graph, layered
from causal.channels import exchange, flow
from causal.effects import ReadSource, Send, SpillSegment, WriteBundle
from causal.errors import Fenced, ReplayDivergence
from causal.events import Event, FrameReceived, SegmentFailed, SourceRead, Turn
from causal.ids import TaskIndex
from causal.ports import Output, Services
from causal.records.rows import listed
from causal.task.performer import DiskEffect
from causal.task.task import TaskProtocol
from operators.testing.cluster import Process
from tests.members import sample
from tests.simulation.chains import HashingChain
from tests.unit.causal.test_task_world import STEPS_MAX, check, run
from tests.unit.causal.world import Disk, World

DIAMOND = graph(
    ("l0/0", "m/0", "m/1", "join/0", "out/0"), (-1, 0), (0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (3, 4), (4, -1)
)
"""A source, two tasks in the middle, a join that also reads the source directly, a sink."""


class SlowDisk(Disk):
    """A disk that answers later, and sometimes refuses to spill."""

    world: RoughWorld

    def __init__(self, world: RoughWorld, process: Process) -> None:
        super().__init__(world, process)
        self.answer = lambda event: world.written.append((process, event))

    def ask(self, effect: DiskEffect) -> None:
        if isinstance(effect, SpillSegment) and self.world.rng.random() >= 0.8:
            self.answer(SegmentFailed(effect.channel, effect.segment))
            return
        self.world.spilled += isinstance(effect, SpillSegment)
        super().ask(effect)


class RoughWorld(World):
    """Frames are lost (a connection that was cut and came back) and doubled; the disk is slow and sometimes refuses."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.written: deque[tuple[Process, Event]] = deque()
        self.spilled = 0
        super().__init__(*args, **settings)

    def disk(self, process: Process) -> Disk:
        return SlowDisk(self, process)

    def transmit(self, process: Process, target: int, incarnation: int, parts: list[bytes]) -> None:
        if self.rng.random() < 0.02:
            for ends in [ends for ends in self.links if ends[0] == process.index]:
                self.links[ends].clear()
            return
        if self.rng.random() < 0.05:
            super().transmit(process, target, incarnation, parts)
        super().transmit(process, target, incarnation, parts)

    def step(self) -> None:
        self.now_ns += self.rng.randint(0, 30_000_000)  # frames that were lost are missed after a second
        super().step()
        if self.written and self.rng.random() < 0.05:
            process, event = self.written.popleft()
            self.feed(process, event)


@pytest.mark.parametrize("seed", sample(range(40), 8))
def test_a_network_that_loses_and_doubles_frames(seed: int) -> None:
    world = RoughWorld(layered((2, 2, 1)), seed=seed, records=60)
    run(world, kills=4, pause=400)
    check(world)


@pytest.mark.parametrize("seed", sample(range(20), 4))
def test_a_diamond_with_a_shortcut(seed: int) -> None:
    world = RoughWorld(DIAMOND, seed=seed, records=60)
    run(world, kills=5, pause=300, together=2)
    check(world)


@pytest.mark.parametrize("seed", sample(range(20), 4))
def test_an_in_flight_log_that_does_not_fit_into_memory(seed: int) -> None:
    world = RoughWorld(layered((2, 2, 1)), seed=seed, records=120, inflight_memory_bytes_max=600)
    run(world, kills=4, pause=500)
    check(world)
    assert world.spilled


class Haunted(World):
    """Killed processes run for a while: they read, send and write until they learn that they are dead."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.ghosts: dict[tuple[int, int], TaskProtocol] = {}
        self.fenced: Counter[str] = Counter()
        super().__init__(*args, **settings)

    def kill(self, index: int) -> None:
        self.ghosts[index, self.incarnations[index]] = self.tasks[index]
        super().kill(index)

    def step(self) -> None:
        super().step()
        if self.ghosts and self.rng.random() < 0.5:
            self._haunt(self.rng.choice(sorted(self.ghosts)), Turn())

    def _haunt(self, ghost: tuple[int, int], event: Event) -> None:
        try:
            for effect in self.ghosts[ghost].handle(event, self.now_ns):
                if isinstance(effect, Send) and effect.target in self.tasks:
                    ends = (*ghost, effect.target, self.incarnations[effect.target])
                    self.links.setdefault(ends, deque()).append(effect.parts)
                elif isinstance(effect, ReadSource):
                    read = self.read(effect.channel, effect.position, effect.count_max)
                    answer = SourceRead(effect.channel, effect.position, listed(read.records), 1, read.ended)
                    self._haunt(ghost, answer)
                elif isinstance(effect, WriteBundle):
                    self._write_as(effect)
        except Fenced:
            self.fenced["by a neighbour"] += 1
            del self.ghosts[ghost]

    def _write_as(self, effect: WriteBundle) -> None:
        before = self.stores[effect.channel].account.next
        try:
            self.stores[effect.channel].write(effect.bundle)
        except Fenced:
            assert self.stores[effect.channel].account.next == before
            self.fenced["by a store"] += 1
            raise

    def transmit(self, process: Process, target: int, incarnation: int, parts: list[bytes]) -> None:
        super().transmit(process, target, incarnation, parts)
        if (target, incarnation) in self.ghosts and process.index in self.topology.downstream(TaskIndex(target)):
            self._haunt((target, incarnation), FrameReceived(b"", parts))


@pytest.mark.parametrize("seed", sample(range(30), 6))
def test_zombies_change_nothing(seed: int) -> None:
    world = Haunted(layered((2, 2, 1)), seed=seed, records=80)
    run(world, kills=6, pause=200)
    check(world)


def test_zombies_are_fenced_by_neighbours_and_by_stores() -> None:
    fenced: Counter[str] = Counter()
    for seed in range(5):
        world = Haunted(layered((2, 2, 1)), seed=seed, records=80)
        run(world, kills=6, pause=200)
        fenced += world.fenced
    assert fenced["by a store"] and fenced["by a neighbour"] > fenced["by a store"]


class Worst(Haunted, RoughWorld):
    """All of it together."""


@pytest.mark.parametrize("seed", sample(range(20), 4))
def test_everything_bad_at_once(seed: int) -> None:
    world = Worst(DIAMOND, seed=seed, records=60, inflight_memory_bytes_max=600)
    run(world, kills=5, pause=300, together=3)
    check(world)


@pytest.mark.parametrize("seed", sample(range(15), 3))
def test_determinants_that_do_not_fit_into_one_frame(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "DELTA_BYTES_TARGET", 20)
    world = Worst(DIAMOND, seed=seed, records=50)
    run(world, kills=5, pause=300, together=2)
    check(world)


@pytest.mark.parametrize("seed", sample(range(15), 3))
def test_an_event_larger_than_what_a_sender_begins_with(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "ALLOWANCE_BYTES_MIN", 150)  # about two records; it grows until events have many
    world = RoughWorld(layered((2, 2, 1)), seed=seed, records=150)
    run(world, kills=3, pause=600, together=5)
    check(world)


@pytest.mark.parametrize("seed", sample(range(15), 3))
def test_bounds_of_the_in_flight_log_slow_a_job_down_and_do_not_stop_it(seed: int) -> None:
    bounds = {"inflight_memory_bytes_max": 600, "inflight_disk_bytes_max": 1500}
    world = RoughWorld(layered((2, 2, 1)), seed=seed, records=120, **bounds)
    run(world, kills=4, pause=500)
    check(world)


@pytest.mark.parametrize("first", sample(range(0, 60, 12), 1))
def test_more_neighbours_at_once_than_the_depth_covers_is_rolled_back_as_far_as_needed(first: int) -> None:
    rolled_back = withdrawn = spared = 0
    for seed in range(first, first + 12):
        world = World(layered((1, 2, 2, 1)), seed=seed, records=60, depth=1)
        run(world, kills=4, pause=200, together=2)
        check(world)
        rolled_back += len(world.rollbacks)
        withdrawn += sum(store.account.withdrawn for store in world.stores.values())
        spared += sum(len(world.topology.tasks) - len(orphans) for orphans in world.rollbacks)
    assert rolled_back and withdrawn and spared


class Forgetful(HashingChain):
    """A chain with hidden nondeterminism: its output depends on something that is not in its state."""

    calls = 0

    def deliver(self, input: int, chunks: Any, first: int, services: Services) -> list[Output]:
        type(self).calls += 1
        self.state["chain"] = bytes([type(self).calls % 251])
        return super().deliver(input, chunks, first, services)


def test_nondeterminism_behind_our_back_is_found_at_the_first_recovery() -> None:
    world = World(layered((1, 1, 1)), seed=3, records=60)
    world.tasks[1].execution.chain.__class__ = Forgetful
    for _ in range(400):
        world.step()
    world.kill(1)
    world.promote(1)
    world.tasks[1].execution.chain.__class__ = Forgetful
    with pytest.raises(ReplayDivergence, match="l1/0"):
        for _ in range(STEPS_MAX):
            world.step()


@pytest.mark.parametrize("guarantee", ["none", "at-least-once"])
def test_without_determinants_a_job_without_failures_is_exact(guarantee: str) -> None:
    world = World(layered((2, 2, 1)), seed=5, records=60, guarantee=guarantee)
    run(world, kills=0, pause=100)
    check(world)


@pytest.mark.parametrize("seed", sample(range(10), 2))
def test_without_any_guarantee_a_job_with_failures_ends(seed: int) -> None:
    world = World(layered((2, 2, 1)), seed=seed, records=60, guarantee="none")
    world.checkpoint = lambda: None  # type: ignore[method-assign]
    run(world, kills=3, pause=300)
    assert not world.faults or all("drop" in fault for fault in world.faults)
