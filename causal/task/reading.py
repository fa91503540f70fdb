"""The reads of a source's partitions: how far ahead, and how long to wait for more elements.

Many small batches cost more than the wait: a batch costs each task of the pipeline the same, of one element or of
hundreds. So a partition that returns a few elements at a time, more often than `FEW_PER_S`, is read again only at the
next multiple of `latency_target_ms`. One that returns as many as requested, or seldom anything, is read immediately.

Multiples of the monotonic clock, which the tasks of a host share: the elements of its sources arrive within the
millisecond in which they wake, so the tasks downstream often process all of them together.
"""

from __future__ import annotations

from collections import deque

from causal.channels.partition import Partition
from causal.determinants import Order
from causal.effects import Effect, ReadSource
from causal.task.batch_sizer import BatchSizer
from causal.task.determinant_cursor import DeterminantCursor

FEW_PER_S = 100
"""The batches per second of a partition up to which none waits."""
REMEMBERED = 8
"""The number of batches over which their pace is measured."""


class Reading:
    """The reads of all partitions of one task: one each ahead, more where a replay waits for it."""

    def __init__(self, partitions: list[Partition], cursor: DeterminantCursor, pace: BatchSizer) -> None:
        self._partitions = partitions
        self._cursor = cursor
        self._pace = pace

    def due(self) -> list[Effect]:
        """Return the reads to ask for now."""
        effects: list[Effect] = []
        for partition in self._partitions:
            if partition.reading or partition.read_out or partition.ended:
                continue
            if partition.queued >= self._pace.elements and not self._replay_waits_for(partition):
                continue
            partition.reading = True
            effects.append(ReadSource(partition.id, partition.next, self._pace.elements))
        return effects

    def _replay_waits_for(self, partition: Partition) -> bool:
        if not self._cursor.replaying:
            return False
        determinant = self._cursor.peek()
        return (
            type(determinant) is Order
            and determinant.input == partition.ordinal
            and partition.queued < determinant.count
        )


class Gathering:
    """The pace of the small batches of one partition.

    Args:
        wait_ns: they begin at its multiples, once there are many; 0: immediately.
    """

    def __init__(self, wait_ns: int) -> None:
        self._wait_ns = wait_ns
        self._small_ns: deque[int] = deque(maxlen=REMEMBERED)
        """The times of the last small batches."""

    def again_ns(self, now_ns: int) -> int:
        """Return when a partition is to be asked that has something at a moment: then, or later."""
        small_ns, wait_ns = self._small_ns, self._wait_ns
        if not wait_ns or len(small_ns) < REMEMBERED:
            return now_ns
        if now_ns - small_ns[0] > REMEMBERED * max(wait_ns, 1_000_000_000 // FEW_PER_S):
            return now_ns
        return -(-now_ns // wait_ns) * wait_ns

    def took(self, elements: int, elements_max: int, now_ns: int) -> None:
        """Record how many of the requested elements the partition returned."""
        if elements < elements_max:
            self._small_ns.append(now_ns)
        else:
            self._small_ns.clear()
