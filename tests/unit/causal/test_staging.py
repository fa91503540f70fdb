"""The sink channel and the figures of rows that wait for a checkpoint."""

from __future__ import annotations

import pytest

from causal.batch import ROWS, Chunk, barrier
from causal.errors import InvariantViolation, Lost
from causal.ports import Held
from causal.shell.latency import STAGED_MAX, Latencies
from causal.sink_channel import SinkChannel

MS = 1_000_000


def channel(position: int = 0, epoch: int = 0) -> SinkChannel:
    sink = SinkChannel(0, "out/0", position, 0, epoch, staging=True)
    sink.open(Held(position, 0, ()), aligned=True)
    return sink


def put(sink: SinkChannel, count: int) -> None:
    sink.put(Chunk(ROWS, count, b"row\n" * count))
    sink.bundle(None, 1, 0)


def test_rows_are_visible_once_their_commit_is_done() -> None:
    sink = channel()
    put(sink, 3)
    sink.put(barrier(1))
    put(sink, 2)
    assert (sink.visible, sink.committed) == (0, 0)
    assert sink.commit(1)
    assert (sink.visible, sink.committed) == (0, 0), "that they are to be visible does not make them so"
    sink.shown(1)
    assert (sink.visible, sink.committed, sink.position) == (3, 1, 5)
    assert not sink.commit(1), "a checkpoint that is told of again has nothing left to show"


def test_a_checkpoint_that_was_never_passed_here_is_no_reason_to_show_anything() -> None:
    with pytest.raises(InvariantViolation, match="was passed"):
        channel().commit(1)


@pytest.mark.parametrize("held", [7, 9])
def test_a_store_must_stand_where_the_checkpoint_was_taken(held: int) -> None:
    sink = SinkChannel(0, "out/0", 8, 0, 2, staging=True)
    with pytest.raises(Lost, match=f"out/0: {held} rows are visible, the checkpoint was taken at 8"):
        sink.open(Held(held, 0, ()), aligned=True)


def test_latency_ends_where_rows_become_visible() -> None:
    told = Latencies()
    told.staged(0, 0, [(1 * MS, 2), (2 * MS, 1)])
    told.staged(0, 1, [(3 * MS, 1)])
    assert not told.buckets_ms
    told.committed(0, 1, 101 * MS)
    assert sum(told.buckets_ms.values()) == 3 and told.max_ms == 100
    told.committed(0, 2, 203 * MS)
    assert sum(told.buckets_ms.values()) == 4 and told.max_ms == 200


def test_rows_without_an_origin_have_no_part_in_the_latency() -> None:
    told = Latencies()
    told.seen([(0, 7), (1 * MS, 2)], 4 * MS)
    assert sum(told.buckets_ms.values()) == 2 and told.max_ms == 3


def test_what_is_remembered_of_rows_that_wait_is_bounded() -> None:
    told = Latencies()
    told.staged(0, 0, [(1, 1)] * (STAGED_MAX + 5))
    told.staged(0, 0, [(1, 1)])
    told.committed(0, 1, 2)
    assert sum(told.buckets_ms.values()) == STAGED_MAX
