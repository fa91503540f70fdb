"""Ordered tasks: the order of their inputs is not logged, and a replay, after any failures, has the same."""

from __future__ import annotations

import random

import pytest

from benchmarks.harness.graphs import layered
from causal.channels.receiver import Receiver
from causal.errors import PeerViolation, ReplayDivergence
from causal.logs.log import DeterminantLog
from causal.records import batch
from causal.records.batch import Chunk
from causal.task.determinant_cursor import DeterminantCursor
from causal.task.picking import ByContent
from operators.source import Read
from tests.members import sample
from tests.unit.causal.test_task_world import check, run
from tests.unit.causal.world import World

LAYERS = (2, 2, 2, 1)


def logged(world: World, kind: str, layer: str) -> int:
    return sum(
        task.cursor.bytes_by_kind[kind]
        for index, task in world.tasks.items()
        if world.topology.tasks[index].name.startswith(layer)
    )


@pytest.mark.parametrize("traits", [("marks",), ("marks", "idle"), ("marks", "plain"), ("marks", "idle", "plain"), ()])
@pytest.mark.parametrize("seed", sample(range(12), 2))
def test_tasks_die_one_by_one_and_together(seed: int, traits: tuple[str, ...]) -> None:
    world = World(layered(LAYERS, ordered=(1, 2)), seed=seed, records=50, traits=traits)
    run(world, kills=8, pause=200, together=1 + seed % 3)
    check(world)


@pytest.mark.parametrize("seed", sample(range(8), 2))
def test_all_die_at_once(seed: int) -> None:
    world = World(layered((2, 2, 1), ordered=(1,)), seed=seed, records=60, traits=("marks", "idle"))
    run(world, kills=3, pause=300, together=5)
    check(world)


@pytest.mark.parametrize("seed", sample(range(8), 2))
def test_below_full_sharing_depth(seed: int) -> None:
    world = World(layered(LAYERS, ordered=(1, 2)), seed=seed, records=50, depth=1, traits=("marks",))
    run(world, kills=5, pause=300)
    check(world)


def test_nothing_is_logged_where_nothing_could_be_otherwise() -> None:
    world = World(layered(LAYERS, ordered=(1, 2)), seed=3, records=60, traits=("marks", "plain"))
    run(world, kills=0, pause=100)
    check(world)
    for layer in ("l1", "l2"):
        assert logged(world, "order", layer) == logged(world, "run", layer) == 0
    assert logged(world, "order", "l3") > 0, "those that are not ordered still log"


def test_what_could_be_otherwise_is_told_as_runs() -> None:
    world = World(layered(LAYERS, ordered=(1, 2)), seed=3, records=60, traits=("marks",))
    run(world, kills=0, pause=100)
    check(world)
    assert logged(world, "run", "l1") > 0 and logged(world, "order", "l1") == 0


class OneByOne(World):
    """Its sources read one record at a time and put no barriers, so what they send is the same for all seeds."""

    def read(self, channel: int, position: int, count_max: int) -> Read:
        return Read([("p", self.topology.channels[channel].partition, position)], 1, position + 1 == self.records)

    def checkpoint(self) -> None:
        """Never: where a barrier stands is a choice, and a channel that it blocks is passed over."""


def test_the_order_does_not_depend_on_arrival() -> None:
    """Other seeds, other arrivals, other deaths: the same rows in the same order."""
    outputs = set()
    for seed in range(6):
        world = OneByOne(
            layered((3, 1, 1), ordered=(1, 2)), seed=seed, records=40, traits=("marks", "plain"), batch_elements_max=1
        )
        run(world, kills=seed, pause=150)
        check(world)
        outputs.add(world.stores[max(world.stores)].rows)
    assert len(outputs) == 1


def channels(*queues: list[Chunk]) -> list[Receiver]:
    inputs = []
    for ordinal, queue in enumerate(queues):
        channel = Receiver(ordinal, ordinal, ordinal, 0, 0, False, 1 << 20)
        channel.accept_chunks(0, queue)
        inputs.append(channel)
    return inputs


def test_the_rule_waits_for_the_input_that_is_furthest_behind() -> None:
    one, two = channels(
        [Chunk(batch.LISTED, 2, ["a", "b"]), batch.watermark(5), Chunk(batch.LISTED, 1, ["c"])],
        [Chunk(batch.LISTED, 1, ["x"]), batch.watermark(3)],
    )
    rule = ByContent([one, two])
    story = []
    while (picked := rule.ruled(False)) is not None:
        channel, count = picked
        channel.take(count)
        story.append((channel.ordinal, count))
    assert story == [(0, 2), (0, 1), (1, 1), (1, 1)], "then the second is behind, and has nothing"
    two.accept_chunks(2, [batch.watermark(7)])
    assert rule.ruled(False) == (two, 1)
    two.take(1)
    assert rule.ruled(False) == (one, 1)


def test_idle_inputs_are_not_waited_for_and_their_return_is_a_choice() -> None:
    one, two = channels([batch.watermark(batch.IDLE_NS)], [Chunk(batch.LISTED, 1, ["x"])])
    rule = ByContent([one, two])
    one.take(1)
    assert rule.choice and rule.ruled(False) == (two, 1) and rule.arrived(False) is None
    one.accept_chunks(1, [Chunk(batch.LISTED, 3, [1, 2, 3])])
    assert rule.arrived(False) == (one, 3)
    one.take(3)
    assert not rule.choice
    assert rule.ruled(False) is None, "now the first is behind"


def test_a_run_is_told_before_the_next_entry_and_counts_the_event_that_is_under_way() -> None:
    from causal.determinants import Clock, Run

    log = DeterminantLog(0)
    writer = DeterminantCursor(log, 0, "x")
    for _ in range(3):
        writer.rule(choice=False)
    assert not log.extent(0)
    writer.record(Clock(7))
    writer.rule(choice=True)
    reader = DeterminantCursor(log, 0, "x")
    assert reader.peek() == Run(3)
    reader.take_run()
    reader.rule(False)
    with pytest.raises(ReplayDivergence, match="asks for clock, but the log has"):
        reader.take(Clock)
    reader.rule(False)
    reader.rule(False)
    assert reader.take(Clock).time_ns == 7
    assert reader.peek() == Run(1)


def test_an_epoch_begins_its_count_anew() -> None:
    from causal.determinants import Clock, Run

    log = DeterminantLog(0)
    writer = DeterminantCursor(log, 0, "x")
    writer.rule(choice=False)
    writer.advance(1)
    writer.rule(choice=False)
    writer.record(Clock(7))
    assert not log.extent(0)
    assert DeterminantCursor(log, 1, "x").peek() == Run(1)


def test_what_waits_is_credited_up_to_a_bound() -> None:
    rng = random.Random(1)
    channel = Receiver(0, 0, 0, 0, 0, False, 1 << 20, hoard_bytes_max=100)
    assert channel.credited == 0
    channel.next, channel.queued_bytes = 10, 100
    assert channel.credited == 10
    channel.queued_bytes = 101 + rng.randrange(9)
    assert channel.credited == 0
    with pytest.raises(PeerViolation):
        channel.accept_chunks(10, [Chunk(batch.RECORDS, 4, b"....")])
        channel.take(3)
