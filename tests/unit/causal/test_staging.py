"""The sink channel and the figures of rows that wait for a checkpoint."""

from __future__ import annotations

import pytest

from causal.channels.sink_channel import SinkChannel
from causal.cut import Cut
from causal.effects import OpenSink
from causal.errors import DeterminantsLost, InvariantViolation
from causal.events import Started
from causal.ports import StoreState
from causal.records.batch import ROWS, Chunk, barrier
from causal.task.latency import STAGED_MAX, Latencies
from tests.tasks import task_of
from tests.unit.causal.echoing import CONFIG, TOPOLOGY

MS = 1_000_000


def channel(position: int = 0, epoch: int = 0) -> SinkChannel:
    sink = SinkChannel(0, "out/0", position, 0, epoch, staging=True)
    sink.open(StoreState(position, 0, ()), aligned=True)
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
    assert not sink.commit(1), "a checkpoint that is reported again has nothing left to show"


def test_a_checkpoint_that_was_never_passed_here_is_no_reason_to_show_anything() -> None:
    with pytest.raises(InvariantViolation, match="was passed"):
        channel().commit(1)


@pytest.mark.parametrize("rows", [7, 9])
def test_a_store_must_stand_where_the_checkpoint_was_taken(rows: int) -> None:
    sink = SinkChannel(0, "out/0", 8, 0, 2, staging=True)
    with pytest.raises(DeterminantsLost, match=f"out/0: {rows} rows are visible, but the checkpoint was taken at 8"):
        sink.open(StoreState(rows, 0, ()), aligned=True)


@pytest.mark.parametrize("staging", [False, True])
def test_the_place_of_a_store_that_was_emptied_is_named(staging: bool) -> None:
    sink = SinkChannel(0, "out/0", 8, 0, 2, staging=staging)
    with pytest.raises(DeterminantsLost, match=r" /home/out\.db.* the checkpoint was taken at 8"):
        sink.open(StoreState(0, 0, (), place="/home/out.db"), aligned=True)


@pytest.mark.parametrize("epoch, rows", [(0, 0), (1, 0), (1, 5)])
def test_a_task_with_a_checkpoint_expects_its_store_also_without_rows_in_it(epoch: int, rows: int) -> None:
    last = TOPOLOGY.tasks[-1].index
    [outside] = TOPOLOGY.outputs(last)
    cut = Cut(epoch, outputs={outside.id: (rows, 0)})
    task = task_of(TOPOLOGY, last, 1, CONFIG, cut=cut)
    opens = OpenSink(outside.id, None, expected=epoch > 0, counted=rows > 0)
    assert opens in task.handle(Started(), 0)


def test_latency_ends_where_rows_become_visible() -> None:
    latencies = Latencies()
    latencies.staged(0, 0, [(1 * MS, 2), (2 * MS, 1)])
    latencies.staged(0, 1, [(3 * MS, 1)])
    assert not latencies.buckets_ms
    latencies.committed(0, 1, 101 * MS)
    assert sum(latencies.buckets_ms.values()) == 3 and latencies.max_ms == 100
    latencies.committed(0, 2, 203 * MS)
    assert sum(latencies.buckets_ms.values()) == 4 and latencies.max_ms == 200


def test_rows_without_an_origin_have_no_part_in_the_latency() -> None:
    latencies = Latencies()
    latencies.seen([(0, 7), (1 * MS, 2)], 4 * MS)
    assert sum(latencies.buckets_ms.values()) == 2 and latencies.max_ms == 3


def test_what_is_remembered_of_rows_that_wait_is_bounded() -> None:
    latencies = Latencies()
    latencies.staged(0, 0, [(1, 1)] * (STAGED_MAX + 5))
    latencies.staged(0, 0, [(1, 1)])
    latencies.committed(0, 1, 2)
    assert sum(latencies.buckets_ms.values()) == STAGED_MAX
