"""The spilling of a task's in-flight logs: which entries go to disk, and when the task must wait."""

from __future__ import annotations

from causal.channels.ends import Channels
from causal.config import JobConfig
from causal.effects import Effect, RemoveSegments, SpillSegment
from causal.events import SegmentWritten

AGAIN_NS = 500_000_000
"""The time before a write that failed is retried."""


class Spilling:
    """The spilling of one segment at a time, from the channel that holds most."""

    def __init__(self, channels: Channels, config: JobConfig) -> None:
        self._channels = channels
        self._memory_max = config.inflight_memory_bytes_max
        self._disk_max = config.inflight_disk_bytes_max
        self._segment = 0
        self._under_way = False
        self._not_before_ns = 0

    def over_bounds(self) -> bool:
        """Return whether no more may be appended to the logs now.

        A task waits for the disk while a segment is being written, and for a neighbour that is unavailable. With all
        neighbours connected it continues over its bounds: only the next checkpoint shortens the logs, and its barrier
        follows the waiting elements. `causal.task.retention` requests that checkpoint before, and sources wait for it.
        """
        memory, disk = self._channels.inflight_bytes()
        full = memory > 2 * self._memory_max
        if full and self._under_way:
            return True
        if not full and disk <= self._disk_max:
            return False
        return not all(output.welcomed for output in self._channels.downstream.values())

    def due(self, now_ns: int) -> list[Effect]:
        """Return the segment to write now, if any."""
        if self._under_way or now_ns < self._not_before_ns or not self._channels.downstream:
            return []
        if self._channels.inflight_bytes()[0] <= self._memory_max:
            return []
        output = max(self._channels.downstream.values(), key=lambda each: each.log.memory_bytes)
        entries = output.spillable()
        if not entries:
            return []
        self._segment += 1
        self._under_way = True
        return [SpillSegment(output.id, self._segment, entries)]

    def written(self, event: SegmentWritten) -> list[Effect]:
        """Free the memory of entries whose segment is on disk; removes it if a checkpoint has covered them."""
        self._under_way = False
        log = self._channels.downstream[event.channel].log
        if log.start >= event.first + event.count:
            return [RemoveSegments([event.segment])]
        log.spilled(event.segment, event.first, event.count)
        return []

    def failed(self, now_ns: int) -> None:
        """Schedule a retry after a write failed; the entries are still in memory."""
        self._under_way = False
        self._not_before_ns = now_ns + AGAIN_NS
