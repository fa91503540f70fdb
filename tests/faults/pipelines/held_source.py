"""Sources that hold back their end until a file is there, so a test decides how long a job runs.

What ends with an `Ending` gives no more than a step of elements after that, so a job that has shown what it is to show
does not work through everything that there could have been.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count as numbers
from pathlib import Path
from typing import Any

from examples.hosts.gated import LOOK_S, GatedSource
from operators.sources import GeneratedSource, SequenceSource
from operators.sources.source import PartitionReader, Read, Source, SourceContext


def hold_end(source: SequenceSource[Any], gate: str | None) -> Source[Any]:
    """Returns the same source with its end held back; as it is without a gate."""
    return source if gate is None else GatedSource(source, Path(gate))


def held_generated(gate: str, *arguments: Any, **settings: Any) -> Source[Any]:
    """Returns a `GeneratedSource` of these arguments with its end held back."""
    return with_end_at(gate, GeneratedSource, *arguments, **settings)


def with_end_at(gate: str, kind: type[SequenceSource[Any]], *arguments: Any, **settings: Any) -> Source[Any]:
    """Returns a source of that kind and these arguments with its end held back."""
    return hold_end(kind(*arguments, **settings), gate)


class HeldSource(GatedSource):
    """One partition of `count` elements, at a pace."""

    def __init__(self, make: Callable[[int, int], Any], count: int, rate: float, gate: Path) -> None:
        super().__init__(GeneratedSource(make, count=count, rate=rate), gate)


class Ending:
    """The place at which partitions end, which is decided once, at a multiple of `step` elements, and stays.

    Who comes first to a step says what it is, by a file: a partition that it goes on, or a test that it is the end.

    Args:
        path: the begin of the names of these files.
    """

    END, FURTHER = "end", "further"

    def __init__(self, path: Path, step: int) -> None:
        self.path, self.step = path, step

    def is_before(self, number: int) -> bool:
        """Whether the step has no elements, asked by a partition that has come to it."""
        return self._said(number, self.FURTHER) == self.END

    def decide(self) -> int:
        """Has all partitions end where none has gone on; returns the number of elements of each."""
        return self.step * next(number for number in numbers() if self._said(number, self.END) == self.END)

    def _said(self, number: int, word: str) -> str:
        """The word of this step, which is this one if it has none."""
        path = f"{self.path}.{number}"
        with suppress(FileExistsError):
            os.symlink(word, path)
        return os.readlink(path)


class EndedSource(Source[Any]):
    """One partition of elements that come at a pace until the end is decided, and then as fast as they are taken."""

    def __init__(self, make: Callable[[int, int], Any], rate: float, ending: Ending) -> None:
        self.partitions, self.vectors = 1, False
        self.make, self.rate, self.ending = make, rate, ending

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        paced, free = (GeneratedSource(self.make, count=None, rate=rate) for rate in (self.rate, None))
        return EndedReader(self.ending, paced.open(partition, context), free.open(partition, context))


class EndedReader:
    """Reads to the end of a step at most."""

    def __init__(self, ending: Ending, paced: PartitionReader, free: PartitionReader) -> None:
        self._ending, self._paced, self._free = ending, paced, free

    def read(self, position: int, count_max: int) -> Read | None:
        number, within = divmod(position, self._ending.step)
        if self._ending.is_before(number):
            return Read([], time.monotonic_ns(), ended=True)
        reader = self._free if self._ending.path.exists() else self._paced
        return reader.read(position, min(count_max, self._ending.step - within))

    def ready_in_s(self, position: int) -> float:
        return LOOK_S

    def completed(self, position: int) -> None:
        """Nothing is held in memory, so nothing is let go."""

    def close(self) -> None:
        """Nothing is open."""
