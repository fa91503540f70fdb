"""A source that holds back its end until a file is there, so a test decides how long a job runs.

Which elements there are is fixed all the same: they come at a pace, and as fast as they are taken once it is there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from operators.sources import GeneratedSource
from operators.sources.base import PartitionReader, Read, Source, SourceContext

LOOK_S = 0.02


class HeldSource(Source):
    """One partition of `count` elements; the last one waits for the gate, a file."""

    def __init__(self, make: Callable[[int, int], Any], count: int, rate: float, gate: Path) -> None:
        self.partitions = 1
        self.count, self.gate = count, gate
        self._paced = GeneratedSource(make, count=count, rate=rate)
        self._free = GeneratedSource(make, count=count)

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        return HeldReader(self, self._paced.open(partition, context), self._free.open(partition, context))


class HeldReader:
    """Reads at a pace up to the last element, and without one when the gate is there."""

    def __init__(self, source: HeldSource, paced: PartitionReader, free: PartitionReader) -> None:
        self._source, self._paced, self._free = source, paced, free

    def read(self, position: int, count_max: int) -> Read | None:
        if self._source.gate.exists():
            return self._free.read(position, count_max)
        left = self._source.count - 1 - position
        return self._paced.read(position, min(count_max, left)) if left > 0 else None

    def ready_in_s(self, position: int) -> float:
        return min(LOOK_S, self._paced.ready_in_s(position)) or LOOK_S

    def completed(self, position: int) -> None:
        """Nothing is held in memory, so nothing is let go."""

    def close(self) -> None:
        """Nothing is open."""
