"""In-flight entries outgrow their memory: one segment at a time is spilled, and tasks wait meanwhile."""

from __future__ import annotations

from benchmarks.harness.graphs import layered
from causal.channels.ends import Channels
from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import SpillSegment
from causal.events import SegmentWritten
from causal.task.retention import AGAIN_NS, Spilling
from tests.unit.causal.test_channels import chunk_of, introduce, sent

MEMORY_MAX = 1000


class Kept:
    """A task that has sent more than its memory may hold, to a neighbour that is there."""

    def __init__(self) -> None:
        topology = layered((1, 1))
        config = JobConfig(run="r", name="n", pipeline="p", inflight_memory_bytes_max=MEMORY_MAX)
        channels = Channels(topology, topology.tasks[0].index, config, Cut())
        receiver = Channels(topology, topology.tasks[1].index, config, Cut()).network[0]
        (self.output,) = channels.downstream.values()
        self.output.dial(1, 0)
        introduce(self.output, receiver)
        self.spilling = Spilling(channels, config)

    def send(self, over: int) -> None:
        """Put records into the log until it holds more than `over` bytes of memory."""
        while self.output.log.memory_bytes <= over:
            self.output.put(chunk_of("x" * 100))
            sent(self.output)

    def spill(self, now_ns: int = 0) -> SpillSegment:
        (effect,) = self.spilling.due(now_ns)
        assert isinstance(effect, SpillSegment)
        return effect


def answered(effect: SpillSegment) -> SegmentWritten:
    first, end = effect.entries[0].first, effect.entries[-1].next
    return SegmentWritten(effect.channel, effect.segment, first, end - first)


def test_a_task_waits_for_the_disk_while_a_segment_is_written_and_it_is_far_over_its_memory() -> None:
    kept = Kept()
    kept.send(MEMORY_MAX)
    assert not kept.spilling.over_bounds()
    segment = kept.spill()
    assert kept.spilling.due(0) == [], "one at a time"
    assert not kept.spilling.over_bounds(), "not yet twice as much"
    kept.send(2 * MEMORY_MAX)
    assert kept.spilling.over_bounds()
    kept.spilling.written(answered(segment))
    assert not kept.spilling.over_bounds()
    assert kept.output.log.memory_bytes <= 2 * MEMORY_MAX and kept.output.log.disk_bytes > 0


def test_far_over_its_memory_a_task_goes_on_while_everybody_is_there_and_waits_when_somebody_is_not() -> None:
    kept = Kept()
    kept.send(2 * MEMORY_MAX)
    assert not kept.spilling.over_bounds()
    kept.output.lose()
    assert kept.spilling.over_bounds()


def test_a_segment_that_could_not_be_written_is_tried_again_a_little_later() -> None:
    kept = Kept()
    kept.send(MEMORY_MAX)
    segment = kept.spill()
    kept.spilling.failed(7)
    assert kept.spilling.due(7 + AGAIN_NS - 1) == []
    assert kept.spill(7 + AGAIN_NS).segment != segment.segment
