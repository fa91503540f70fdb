"""A source that withholds its end until a file exists, so the starter of a job decides how long it runs.

The elements are fixed all the same: they arrive at a pace, and as fast as possible once the file exists.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from operators.source import PartitionReader, Read, Source, SourceContext
from operators.sources import SequenceSource

LOOK_S = 0.1
"""The pace of reading: the elements of one step are one batch, so that many jobs share one processor."""


class GatedSource(Source[Any]):
    """Elements and pace of another source; the last element of each partition waits for the gate, a file."""

    def __init__(self, source: SequenceSource[Any], gate: Path) -> None:
        if source.count is None:
            raise ValueError("a source without an end has none to hold back; give it a count")
        self.partitions, self.vectors = source.partitions, source.vectors
        self.last, self.gate = source.count - 1, gate
        self._paced, self._free = source, copy.copy(source)
        self._free.rate = None

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        return HeldReader(self, self._paced.open(partition, context), self._free.open(partition, context))


class HeldReader:
    """Reads at a pace up to the last element, and without a pace once the gate exists."""

    def __init__(self, source: GatedSource, paced: PartitionReader, free: PartitionReader) -> None:
        self._source, self._paced, self._free = source, paced, free

    def read(self, position: int, count_max: int) -> Read | None:
        if self._source.gate.exists():
            return self._free.read(position, count_max)
        left = self._source.last - position
        return self._paced.read(position, min(count_max, left)) if left > 0 else None

    def ready_in_s(self, position: int) -> float:
        return LOOK_S

    def completed(self, position: int) -> None:
        """Nothing is held in memory, so nothing is let go."""

    def close(self) -> None:
        """Nothing is open."""
