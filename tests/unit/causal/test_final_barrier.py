"""No task performs an event after the final barrier: what is visible then is what the savepoint holds."""

from __future__ import annotations

import pytest

from benchmarks.harness.graphs import layered
from causal.cut import Cut
from causal.determinants import Barrier, DeterminantCodec
from causal.events import CheckpointRequested
from tests.members import sample
from tests.unit.causal.world import World

STEPS_MAX = 100_000


def stand(world: World, epoch: int, kills: int) -> None:
    """Request a final barrier from the sources until every task stands after it, through `kills` failures."""
    for step in range(STEPS_MAX):
        world.step()
        if step % 20 == 0:
            for index in list(world.tasks):
                if world.topology.is_source(index):  # type: ignore[arg-type]
                    world.handle(index, CheckpointRequested(epoch, True))
        if kills and step % 150 == 149 and world.tasks:
            kills -= 1
            world.kill(world.rng.choice(sorted(world.tasks)))
        if world.dead and world.rng.random() < 0.1:
            world.promote(world.rng.choice(sorted(world.dead)))
        written = all((index, epoch) in world.snapshots for index in range(len(world.topology.tasks)))
        if (
            not kills
            and not world.dead
            and written
            and all(t.execution.schedule.standing for t in world.tasks.values())
        ):
            return
    raise AssertionError([(t.name, t.recovery.state, t.cursor.epoch) for t in world.tasks.values()])


def visible(world: World) -> list[int]:
    return [store.account.next for store in world.stores.values()]


def saved(world: World, epoch: int) -> list[int]:
    """Return positions of the sinks' channels in the cuts of the savepoint."""
    cuts = [Cut.unpack(world.snapshots[task.index, epoch][0]) for task in world.topology.tasks]
    return [next(cut.outputs[channel][0] for cut in cuts if channel in cut.outputs) for channel in world.stores]


@pytest.mark.parametrize("seed", sample(range(20), 4))
@pytest.mark.parametrize("depth", [1_000_000, 1])
def test_all_stand_at_the_savepoint_whoever_fails(seed: int, depth: int) -> None:
    world = World(layered((2, 2, 1)), seed=seed, records=4000, depth=depth)
    for _ in range(world.rng.randint(1, 1500)):
        world.step()
        if world.rng.random() < 0.01:
            world.checkpoint()
    for _ in range(STEPS_MAX):
        if world.complete == world.asked:
            break
        world.step()
        world.checkpoint()
    epoch = world.complete + 1
    stand(world, epoch, kills=4 if depth > 1 else 1)
    assert not world.done()
    assert visible(world) == saved(world, epoch)
    for _ in range(3000):
        world.step()
    assert visible(world) == saved(world, epoch)


def test_a_final_barrier_is_written_into_the_log_as_such() -> None:
    codec = DeterminantCodec()
    log = b"".join(codec.encode(each) for each in (Barrier(7), Barrier(8, True)))
    first, place = codec.decode(log, 0)
    second, end = codec.decode(log, place)
    assert (first, second, end) == (Barrier(7), Barrier(8, True), len(log))
