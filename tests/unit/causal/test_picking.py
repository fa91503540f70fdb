"""The choice of the next event by arrival, where an input that is behind may come before its turn, or by a rule."""

from __future__ import annotations

from causal.channels.queue import InputQueue
from causal.channels.receiver import Receiver
from causal.records import batch
from causal.records.batch import Chunk
from causal.task.batch_sizer import BatchSizer
from causal.task.picking import PASSES_MAX, ByArrival, ByContent


def queue(ordinal: int, *chunks: Chunk) -> InputQueue:
    channel = InputQueue(ordinal, ordinal, ordinal, 0, False)
    channel.accept_chunks(0, chunks)
    return channel


def timed(*marks: int) -> list[Chunk]:
    """Return one record before each of these watermarks."""
    return [chunk for mark in marks for chunk in (Chunk(batch.LISTED, 1, [mark]), batch.watermark(mark))]


def delivered(*channels: InputQueue) -> list[int]:
    """Return the inputs in the order in which their events, a record and a watermark each, are delivered."""
    choice, story = ByArrival(channels, BatchSizer(2, 1 << 20, 1000), 1 << 20), list[int]()
    while (picked := choice.pick(False)) is not None:
        channel, count = picked
        channel.take(count)
        story.append(channel.ordinal)
    return story


def test_without_event_time_inputs_take_turns() -> None:
    records = [Chunk(batch.LISTED, 2, ["x", "y"])] * 3
    assert delivered(queue(0, *records), queue(1, *records), queue(2, *records[:1])) == [0, 1, 2, 0, 1, 0, 1]


def test_an_input_that_is_behind_comes_before_its_turn() -> None:
    ahead, behind = queue(0, *timed(40, 80, 120)), queue(1, *timed(10, 20, 30, 40, 50, 60, 70, 80, 90))
    assert delivered(ahead, behind) == [0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1]
    three = queue(0, *timed(9, 10)), queue(1, *timed(1, 8, 9)), queue(2, *timed(2, 3, 10))
    assert delivered(*three) == [0, 1, 2, 1, 2, 2, 1, 0]


def test_no_input_waits_for_ever_for_its_turn() -> None:
    ahead, stuck = queue(0, *timed(40, 80)), queue(1, *timed(*[1] * 3 * PASSES_MAX))
    assert delivered(ahead, stuck)[: PASSES_MAX + 3] == [0, 1, *[1] * PASSES_MAX, 0]


def test_an_input_without_event_time_has_its_turn() -> None:
    records = [Chunk(batch.LISTED, 2, ["x", "y"])] * 3
    assert delivered(queue(0, *timed(7, 8, 9)), queue(1, *records)) == [0, 1, 0, 1, 0, 1]


def test_where_the_chain_is_full_only_barriers_are_delivered() -> None:
    full = ByArrival((queue(0, *timed(7)), queue(1, batch.barrier(3))), BatchSizer(2, 1 << 20, 1000), 1 << 20)
    picked = full.pick(True)
    assert picked is not None and (picked[0].ordinal, picked[1]) == (1, 1)


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
