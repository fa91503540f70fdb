"""A task that keeps half of a bound requests a checkpoint, and sources hold back records for it."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.harness.graphs import graph, layered
from causal.channels.sink_channel import SinkChannel
from causal.events import CheckpointCompleted, CheckpointRequested, Event, Turn
from causal.records.batch import ROWS, Chunk
from tests.members import campaign, sample
from tests.unit.causal.test_rough_world import RoughWorld
from tests.unit.causal.test_task_world import STEPS_MAX, check, run
from tests.unit.causal.world import World

INFLIGHT_MAX, LOG_MAX = 2000, 1000
RECORDS = 750


def kept(world: World) -> tuple[int, int]:
    """Return the most that a task keeps: (in-flight bytes, bytes of determinants)."""
    tasks = world.tasks.values()
    return max(sum(t.channels.inflight_bytes()) for t in tasks), max(t.holdings.size for t in tasks)


def until_done(world: World, asking: bool) -> tuple[int, int]:
    """Run without a clock for checkpoints: one begins only if a task requests it. Returns the most that was kept."""
    inflight = logs = steps = 0
    while not world.done():
        steps += 1
        assert steps < STEPS_MAX, f"does not end: {world.faults}"
        world.step()
        if asking and (world.asked > world.complete or world.pressed()):
            world.checkpoint()
        now = kept(world)
        inflight, logs = max(inflight, now[0]), max(logs, now[1])
    check(world)
    return inflight, logs


def bounded(**bounds: Any) -> World:
    return World(layered((2, 2, 1)), seed=4, records=RECORDS, **bounds)


@pytest.mark.parametrize(
    ("bounds", "place"), [({"inflight_disk_bytes_max": INFLIGHT_MAX}, 0), campaign({"log_bytes_max": LOG_MAX}, 1)]
)
def test_with_all_neighbours_there_what_is_kept_stays_near_its_bound(bounds: dict[str, int], place: int) -> None:
    (most,) = bounds.values()
    without = until_done(bounded(), asking=False)[place]
    world = bounded(**bounds)
    kept = until_done(world, asking=True)[place]
    assert without > 8 * most, "the job is long enough for the bound to matter"
    assert kept <= 2 * most
    assert world.complete > 4


@pytest.mark.parametrize("seed", sample(range(15), 3))
def test_sources_that_hold_back_records_let_a_job_with_failures_end(seed: int) -> None:
    world = RoughWorld(
        layered((2, 2, 1)), seed=seed, records=150, inflight_disk_bytes_max=400, log_bytes_max=200,
        inflight_memory_bytes_max=300,
    )  # fmt: skip
    run(world, kills=4, pause=400, together=2)
    check(world)


def test_a_source_that_holds_goes_on_when_its_checkpoint_is_complete_and_not_before() -> None:
    world = World(layered((1, 1)), seed=1, records=200)
    for _ in range(60):
        world.step()
    source = world.tasks[0]
    world.asked = 1
    world.handle(0, CheckpointRequested(1, hold=True))
    (partition,) = source.channels.partitions
    for _ in range(20):
        world.step()
    stood = partition.delivered
    assert source.cursor.epoch == 1, "the barrier does not wait"
    for _ in range(200):
        world.step()
    assert partition.delivered == stood < 200
    world.handle(0, CheckpointCompleted(1))
    world.handle(0, CheckpointRequested(1, hold=True))  # late: it does not count any more
    world.complete = 1
    for _ in range(200):
        world.step()
    assert partition.delivered > stood


def test_a_sink_wants_a_checkpoint_until_its_staged_rows_are_visible() -> None:
    sink = SinkChannel(0, "out/0", 0, 0, 0, staging=True)
    for size in (10, 20):
        sink.put(Chunk(ROWS, 1, b"x" * size, 0))
        sink.bundle(None, 1, 0)
        if size == 10:
            sink._barriers[1] = sink.position
            sink.epoch = 1
    assert sink.staged_bytes == 30
    sink.shown(1)
    assert sink.staged_bytes == 20, "rows behind the barrier wait for the next one"


TWO_CHAINS = graph(("a/0", "b/0", "a-out/0", "b-out/0"), (-1, 0), (-1, 1), (0, 2), (1, 3), (2, -1), (3, -1))
"""Two pipelines in one job that share nothing but its checkpoints."""


class Hanging(World):
    """A record of the first source takes as long as `hangs`: the barrier stands behind it."""

    hangs = True

    def handle(self, index: int, event: Event) -> None:
        if not (self.hangs and index == 0 and type(event) is Turn):
            super().handle(index, event)


def hanging(**bounds: Any) -> tuple[Hanging, int]:
    """Return the job after a while in which one task hangs with a checkpoint under way, and the most that was kept."""
    world = Hanging(TWO_CHAINS, seed=2, records=RECORDS, **bounds)
    most = 0
    for _ in range(6_000):
        world.step()
        world.checkpoint()
        most = max(most, kept(world)[1])
    assert (world.asked, world.complete) == (1, 0)
    return world, most


def test_while_a_record_hangs_before_a_barrier_the_other_tasks_keep_no_more_than_their_bounds() -> None:
    assert hanging()[1] > 4 * LOG_MAX
    world, most = hanging(log_bytes_max=LOG_MAX)
    assert most <= 2 * LOG_MAX
    world.hangs = False
    assert until_done(world, asking=True)[1] <= 2 * LOG_MAX
