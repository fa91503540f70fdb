"""Limits on the data that a task keeps until the next checkpoint: in-flight entries, determinants and staged rows.

Only a complete checkpoint reduces this data: `truncate` drops the part that the checkpoint covers. A task that has
reached half of a limit requests a checkpoint. The supervisor begins it immediately and makes the sources hold back
records until it is complete (design page 0021). In-flight entries that exceed their memory budget are spilled to disk.
"""

from __future__ import annotations

from causal.channels.ends import Channels
from causal.config import JobConfig
from causal.cut import Cut
from causal.effects import (
    CommitRows,
    Effect,
    RemoveSegments,
    SourceCompleted,
    SpillSegment,
    TruncateSink,
    TruncateStable,
)
from causal.events import SegmentWritten
from causal.logs.dissemination import Holdings

AGAIN_NS = 500_000_000
"""The time before a failed write of a segment is retried."""


class Retention:
    """The limits of one incarnation of one task.

    Args:
        epoch: the epoch of the checkpoint from which the task was restored.
    """

    def __init__(self, channels: Channels, holdings: Holdings, config: JobConfig, epoch: int) -> None:
        self._channels = channels
        self._holdings = holdings
        self._inflight_max = config.inflight_disk_bytes_max
        self._log_max = config.log_bytes_max
        self._staged_max = config.staged_bytes_max
        self._completed_epoch = epoch

    def completed(self, epoch: int) -> None:
        """Record that checkpoint `epoch` is complete and that the data it covers is being dropped."""
        self._completed_epoch = max(self._completed_epoch, epoch)

    @property
    def wanted_epoch(self) -> int:
        """The checkpoint that should complete now because half of a limit has been reached; 0 if there is none."""
        epoch = 0
        if 2 * sum(self._channels.inflight_bytes()) > self._inflight_max or 2 * self._holdings.size > self._log_max:
            epoch = self._completed_epoch + 1
        for sink in self._channels.sinks.values():
            if 2 * sink.staged_bytes > self._staged_max:  # the last checkpoint may be complete but not committed yet
                epoch = max(epoch, sink.committed + 1)
        return epoch


class Spilling:
    """Spills one segment at a time from the channel that uses the most memory."""

    def __init__(self, channels: Channels, config: JobConfig) -> None:
        self._channels = channels
        self._memory_max = config.inflight_memory_bytes_max
        self._disk_max = config.inflight_disk_bytes_max
        self._segment = 0
        self._under_way = False
        self._not_before_ns = 0

    def over_bounds(self) -> bool:
        """Return whether nothing more may be appended to the in-flight logs now.

        A task that exceeds its limits waits while a segment is being written, and while a neighbour is unavailable. If
        all neighbours are connected, the task continues, because only the next checkpoint shortens the logs, and its
        barrier follows the waiting elements. `Retention` requests that checkpoint in advance, and the sources wait for
        it.
        """
        memory, disk = self._channels.inflight_bytes()
        full = memory > 2 * self._memory_max
        if full and self._under_way:
            return True
        if not full and disk <= self._disk_max:
            return False
        return not all(output.welcomed for output in self._channels.downstream.values())

    def due(self, now_ns: int) -> list[Effect]:
        """Return the effect that writes a segment, if one should be written now."""
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
        """Free the memory of entries whose segment is on disk; if a checkpoint covers them, remove the segment."""
        self._under_way = False
        log = self._channels.downstream[event.channel].log
        if log.start >= event.first + event.count:
            return [RemoveSegments([event.segment])]
        log.spilled(event.segment, event.first, event.count)
        return []

    def failed(self, now_ns: int) -> None:
        """Schedule a retry after a failed write; the entries are still in memory."""
        self._under_way = False
        self._not_before_ns = now_ns + AGAIN_NS


def truncate(epoch: int, cut: Cut | None, holdings: Holdings, channels: Channels) -> list[Effect]:
    """Drop the data that complete checkpoint `epoch` covers; rows staged before it become visible.

    Args:
        cut: the task's position at that barrier, if known.

    State: `holdings` and `channels` no longer contain the data that the checkpoint covers.
    """
    effects: list[Effect] = []
    holdings.truncate(epoch)
    if holdings.flushing:
        effects.append(TruncateStable(epoch))
    gone: set[int] = set()
    for output in channels.downstream.values():
        gone |= output.truncate(epoch)
    if gone:
        effects.append(RemoveSegments(sorted(gone)))
    for sink in channels.sinks.values():
        sink.truncate(epoch)
        if not sink.staging:
            effects.append(TruncateSink(sink.id, epoch))
        elif sink.commit(epoch):
            effects.append(CommitRows(sink.id, epoch))
    if cut is not None:
        effects += [SourceCompleted(c.id, cut.inputs[c.id][0]) for c in channels.partitions if c.id in cut.inputs]
    return effects
