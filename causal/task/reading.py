"""The reads of a source's partitions: how far to read ahead, and how long to wait for more elements.

Many small batches cost more than a short wait, because each task of the pipeline spends about as much on a batch of one
element as on a batch of hundreds. Therefore, a partition that returns few elements at a time, more often than
`FEW_PER_S`, is read again only at the next multiple of `latency_target_ms`. A partition that returns as many elements
as requested, or rarely returns any, is read immediately.

The multiples refer to the monotonic clock, which all tasks on a host share. The sources on a host therefore wake within
the same millisecond, and the downstream tasks can often process the elements of all of them together.
"""

from __future__ import annotations

from collections import deque

from causal.channels.partition import Partition
from causal.determinants import Order
from causal.effects import Effect, ReadSource
from causal.task.batch_sizer import BatchSizer
from causal.task.determinant_cursor import DeterminantCursor

FEW_PER_S = 100
"""The number of batches per second up to which a partition is read without waiting."""
REMEMBERED = 8
"""The number of batches over which the rate is measured."""


class Reading:
    """The reads of all partitions of one task: one read ahead per partition, or more if a replay needs elements."""

    def __init__(self, partitions: list[Partition], cursor: DeterminantCursor, pace: BatchSizer) -> None:
        self._partitions = partitions
        self._cursor = cursor
        self._pace = pace

    def due(self) -> list[Effect]:
        """Return the reads to request now."""
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
    """The rate of small batches from one partition, and the resulting wait.

    Args:
        wait_ns: the time whose multiples are the times of reads once small batches are frequent; 0 means no wait.
    """

    def __init__(self, wait_ns: int) -> None:
        self._wait_ns = wait_ns
        self._small_ns: deque[int] = deque(maxlen=REMEMBERED)
        """The times of the most recent small batches."""

    def again_ns(self, now_ns: int) -> int:
        """Return the time at which to read a partition that has elements at `now_ns`; it is `now_ns` or later."""

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
