"""Whole small jobs of the production core, with failures at random moments: nothing lost, repeated or contradicted."""

from __future__ import annotations

import json

import pytest

from benchmarks.harness.graphs import layered
from causal.events import PeerDown, PeerUp
from tests.members import sample
from tests.unit.causal.world import World

STEPS_MAX = 200_000


def records_of(world: World) -> list[tuple[object, ...]]:
    """Return the records of sources that are visible, without what timers, answer and end have put out."""
    lines = [line for store in world.stores.values() for line in store.rows.splitlines()]
    records = [tuple(record) for _, record in map(json.loads, lines)]
    return [record for record in records if record[0] == "p"]


def run(world: World, kills: int, pause: int, together: int = 1) -> None:
    steps = 0
    next_kill = world.rng.randint(20, pause)
    while not world.done():
        steps += 1
        assert steps < STEPS_MAX, f"does not end: {[t.recovery.state for t in world.tasks.values()]} {world.faults}"
        world.step()
        if steps % 97 == 0:
            world.checkpoint()
        if kills and steps >= next_kill and world.tasks:
            next_kill = steps + world.rng.randint(1, pause)
            kills -= 1
            for index in world.rng.sample(sorted(world.tasks), min(together, len(world.tasks))):
                world.kill(index)
        if world.dead and world.rng.random() < 0.1:
            world.promote(world.rng.choice(sorted(world.dead)))


def check(world: World) -> None:
    sources = sum(1 for t in world.topology.tasks if world.topology.is_source(t.index))
    wanted = {("p", p, i) for p in range(sources) for i in range(world.records)}
    seen = records_of(world)
    assert len(seen) == len(wanted), (len(seen), len(wanted))
    assert set(seen) == wanted


@pytest.mark.parametrize("layers", [(1, 1), (2, 1), (2, 2, 1), (2, 2, 2, 2)])
def test_a_job_without_failures_delivers_everything_once(layers: tuple[int, ...]) -> None:
    world = World(layered(layers), seed=1, records=60)
    run(world, kills=0, pause=100)
    check(world)
    assert not world.faults


@pytest.mark.parametrize("seed", sample(range(40), 8))
def test_one_task_at_a_time_dies_at_random_moments(seed: int) -> None:
    world = World(layered((2, 2, 1)), seed=seed, records=80)
    run(world, kills=6, pause=300)
    check(world)


@pytest.mark.parametrize("late", [PeerDown(1, 1), PeerUp(1, 1)], ids=["its death", "its life"])
def test_what_is_told_late_of_a_dead_incarnation_does_not_undo_what_is_known_of_its_successor(
    late: PeerDown | PeerUp,
) -> None:
    world = World(layered((1, 1)), seed=1, records=60)
    while not world.tasks[1].inputs[0].delivered:
        world.step()
    world.kill(1)
    world.promote(1)
    (output,) = world.tasks[0].channels.downstream.values()
    while not output.welcomed:
        world.step()
    world.handle(0, late)
    assert output.welcomed and output.peer_incarnation == 2, "no task has to ask again for what it is sent"
    run(world, kills=0, pause=100)
    check(world)


@pytest.mark.parametrize("seed", sample(range(40), 8))
def test_several_tasks_die_together_and_again_while_they_recover(seed: int) -> None:
    world = World(layered((2, 2, 2, 1)), seed=seed, records=50)
    run(world, kills=8, pause=120, together=3)
    check(world)


@pytest.mark.parametrize("seed", sample(range(20), 4))
def test_all_tasks_die_at_once_and_the_stores_guide_the_replay(seed: int) -> None:
    world = World(layered((2, 2, 1)), seed=seed, records=60)
    run(world, kills=3, pause=300, together=5)
    check(world)
    assert world.phases.count(("l2/0", "running")) >= 2


@pytest.mark.parametrize("seed", sample(range(20), 4))
def test_one_failure_at_a_time_is_masked_by_sharing_depth_one(seed: int) -> None:
    world = World(layered((2, 2, 1)), seed=seed, records=60, depth=1)
    kills, steps = 5, 0
    while not world.done():
        steps += 1
        assert steps < STEPS_MAX
        world.step()
        if steps % 97 == 0:
            world.checkpoint()
        if kills and steps % 150 == 0 and all(t.recovery.state.value == "running" for t in world.tasks.values()):
            kills -= 1
            victim = world.rng.choice(sorted(world.tasks))
            world.kill(victim)
            world.promote(victim)
    check(world)
