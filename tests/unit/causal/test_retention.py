"""A task that keeps half of a bound requests a checkpoint, and sources hold back records for it."""

from __future__ import annotations

from benchmarks.harness.graphs import layered
from causal.channels.sink_channel import SinkChannel
from causal.config import JobConfig
from causal.records.batch import ROWS, Chunk
from tests.tasks import task_of


def test_a_source_holds_until_the_last_checkpoint_it_was_asked_to_hold_for_is_complete() -> None:
    schedule = task_of(layered((1, 1)), 0, 1, JobConfig(run="r", name="n", pipeline="p")).execution.schedule
    steps = [("hold", 2), ("completed", 1), ("hold", 1), ("completed", 2), ("hold", 2)]  # the last one is late
    holding = []
    for step, epoch in steps:
        if step == "hold":
            schedule.request_checkpoint(epoch, final=False, hold=True)
        else:
            schedule.checkpoint_completed(epoch)
        holding.append(schedule.holding)
    assert holding == [True, True, True, False, False]


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
