"""Reads ahead from the partitions of a source task: one read each, more where a replay waits for it."""

from __future__ import annotations

from causal.channels.partition import Partition
from causal.determinants import Order
from causal.effects import Effect, ReadSource
from causal.task.batch_sizer import BatchSizer
from causal.task.determinant_cursor import DeterminantCursor


class Reading:
    """The reads of all partitions of one task."""

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
