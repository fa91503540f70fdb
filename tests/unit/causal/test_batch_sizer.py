"""Turns stay short where records take their time: few elements per event, cut out of chunks where need be."""

from __future__ import annotations

from causal.channels.receiver import Receiver
from causal.channels.rolling import RollingDigest
from causal.channels.wire import DATA, Header
from causal.records.batch import LISTED, RECORDS, Chunk, barrier, decode_records, encode_records, pack_chunks
from causal.task.batch_sizer import FIRST_ELEMENTS, SHORT_NS, SMALL_BYTES, SMALL_ELEMENTS, BatchSizer

SECOND_NS = 1_000_000_000


def took(pace: BatchSizer, elements: int, output_bytes: int, took_ns: int) -> None:
    """Perform a turn that delivers so many elements."""
    pace.turn_elements, pace.turn_bytes = elements, output_bytes
    pace.begin_turn(took_ns)


def test_a_fast_task_soon_takes_all_it_may() -> None:
    pace = BatchSizer(4096, 1 << 20, 5000)
    assert pace.elements == FIRST_ELEMENTS and pace.reduced
    turns = 0
    while pace.reduced:
        took(pace, pace.elements, 0, 1_000)
        turns += 1
    assert pace.elements == 4096 and turns == 8


def test_a_slow_task_takes_what_it_is_done_with_in_a_moment() -> None:
    pace = BatchSizer(4096, 1 << 20, 5000)
    for _ in range(20):
        took(pace, pace.elements, 0, pace.elements * 2_000_000)  # 2 ms per record: 200 ms hold 100
    assert 25 <= pace.elements <= 100
    took(pace, pace.elements, 0, 100 * SECOND_NS)
    assert pace.elements == 1


def test_chunks_that_do_not_unite_are_no_reason_to_stay_behind() -> None:
    pace = BatchSizer(4096, 1 << 20, 5000)
    for _ in range(20):
        took(pace, min(pace.elements, 1900), 7_000, 600_000)
    assert not pace.reduced


def test_turns_that_deliver_far_less_than_they_might_tell_nothing() -> None:
    pace = BatchSizer(4096, 1 << 20, 5000)
    took(pace, 1, 0, 1_000)
    took(pace, 0, 0, 100 * SECOND_NS)
    assert pace.elements == FIRST_ELEMENTS
    assert not BatchSizer(1, 1 << 20, 5000).reduced


def test_large_records_come_few_at_a_time() -> None:
    pace = BatchSizer(4096, 1 << 20, 5000)
    for _ in range(20):
        took(pace, pace.elements, pace.elements * 20_000, 1_000)
    assert 13 <= pace.elements <= 52
    took(pace, pace.elements, 1 << 30, 1_000)
    assert pace.elements == 1


def received(*chunks: Chunk) -> Receiver:
    channel = Receiver(0, 0, 3, 0, 0, False, 1 << 20)
    payload = pack_chunks(chunks)
    count = sum(chunk.count for chunk in chunks)
    assert channel.accept(Header(DATA, 0, 3, 1, 0, 0, count, 0, RollingDigest(0).feed(payload)), payload)
    return channel


def test_a_chunk_is_cut_and_paid_for_with_its_last_part() -> None:
    body = encode_records(list(range(10)))
    channel = received(Chunk(RECORDS, 10, body), Chunk(RECORDS, 2, encode_records([10, 11])), barrier(1))
    queued = channel.queued_bytes
    taken: list[int] = []
    for count in (4, 4, 2):
        assert channel.head_count(4, 1 << 20, cutting=True) == count
        assert channel.flow.uncredited_bytes == 0
        [part] = channel.take(count)
        assert part.kind == LISTED and part.count == count
        taken += part.body
    assert taken == list(range(10)) and channel.delivered == 10
    assert 0 < channel.flow.uncredited_bytes == queued - channel.queued_bytes
    [whole] = channel.take(channel.head_count(4, 1 << 20, cutting=True))
    assert whole.kind == RECORDS and decode_records(whole.body) == [10, 11]
    [last] = channel.take(channel.head_count(4, 1 << 20, cutting=True))
    assert last.count == 1 and channel.queued_bytes == 0 and channel.digest_at_barrier(1)


def test_what_a_cut_has_left_is_an_event_of_its_own() -> None:
    channel = received(Chunk(RECORDS, 3, encode_records([0, 1, 2])), Chunk(RECORDS, 1, encode_records([3])))
    channel.take(channel.head_count(2, 1 << 20, cutting=True))
    assert channel.head_count(100, 1 << 20) == 1
    assert channel.take(1)[0].body == [2]
    assert channel.take(channel.head_count(100, 1 << 20))[0].kind == RECORDS


def test_a_chunk_is_taken_whole_where_the_task_keeps_up() -> None:
    channel = received(Chunk(RECORDS, 10, encode_records(list(range(10)))))
    assert channel.head_count(4, 1 << 20) == 10


def test_another_event_follows_in_a_turn_that_is_small_and_short() -> None:
    pace = BatchSizer(4096, 1 << 20, 5000)
    for elements, output_bytes, took_ns, small in [
        (15, 0, 0, True), (SMALL_ELEMENTS, 0, 0, False), (1, SMALL_BYTES + 1, 0, False), (1, 0, SHORT_NS + 1, False),
    ]:  # fmt: skip
        pace.begin_turn(took_ns)
        pace.turn_elements, pace.turn_bytes = elements, output_bytes
        assert pace.small is small
