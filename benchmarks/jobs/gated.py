"""A source that continues until a file says where it ends: a paced job then ends when enough of it was seen."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from operators.source import PartitionReader, Read, Source, SourceContext

LOOK_S = 0.02
MARGIN_S = 2.0
"""Distance between the element that is due and the element at which a source is to end."""


class Gated(Source[Any]):
    """Each partition of an endless paced source ends before the element whose number is in the file, once it is there.

    The number must be higher than that of any element that is due when it is written: see `shut`.
    """

    def __init__(self, paced: Source[Any], gate: Path) -> None:
        self.partitions = paced.partitions
        self._gate = gate
        self._paced = paced

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """See `Source.open`."""
        return _Gated(self._paced.open(partition, context), self._gate)


class _Gated:
    def __init__(self, paced: PartitionReader, gate: Path) -> None:
        self._paced, self._gate = paced, gate

    def read(self, position: int, count_max: int) -> Read | None:
        """See `PartitionReader.read`."""
        if not self._gate.exists():
            return self._paced.read(position, count_max)
        left = int(self._gate.read_text()) - position
        if left <= 0:
            return Read([], 0, ended=True)
        return self._paced.read(position, min(count_max, left))

    def ready_in_s(self, position: int) -> float:
        """See `PartitionReader.ready_in_s`; the file may come at any time."""
        return min(LOOK_S, self._paced.ready_in_s(position))

    def completed(self, position: int) -> None:
        """Nothing is held, so nothing is let go."""

    def close(self) -> None:
        """Nothing is open."""


def shut(gate: Path, began_ns: int, rate: float) -> int:
    """End the source soon; returns the number of elements that each partition then has.

    Args:
        began_ns: the time at which the first element of each partition was due.
        rate: elements per second and partition.
    """
    elements = int(((time.monotonic_ns() - began_ns) / 1e9 + MARGIN_S) * rate)
    fresh = gate.with_name(gate.name + ".new")
    fresh.write_text(str(elements))
    os.replace(fresh, gate)
    return elements
