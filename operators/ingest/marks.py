"""The marks of an ingest log: names of empty objects that say what its readers and the job's savepoints still need.

    low-water/<channel>-<batch>-<done>[-<returns>]   a reader's mark; the highest numbers of a channel count
    kept/<batch>-<savepoint>                         a savepoint's mark: it needs the batches from this one on
    kept/<batch>-recording                           the mark of the job's recording, which moves with its window (0053)

A job that is rolled back reads input again, so the marks of its readers are lowered. Marks of readers that began before
the last such return do not count, however late they are written (0043).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

RECORDING = "recording"
"""The name under which a recording of the job has its mark; no savepoint has it."""

_LOW_WATER = re.compile(r"(\d{5})-(\d{10})-(\d{10})(?:-(\d{10}))?")
_KEPT = re.compile(r"(\d{10})-(.+)")


class LowWater(NamedTuple):
    """A mark of a reader: the channel needs no batch below `batch`, and has read those below `done`.

    `returns` is the number of times that the log had returned to a savepoint when the reader began.
    """

    channel: int
    batch: int
    done: int
    returns: int = 0

    @property
    def name(self) -> str:
        """The name of the mark's object."""
        returns = f"-{self.returns:010d}" if self.returns else ""
        return f"{self.channel:05d}-{self.batch:010d}-{self.done:010d}{returns}"

    def supersedes(self, other: LowWater) -> bool:
        """Return whether another mark says nothing beyond this one."""
        if other.returns != self.returns:
            return other.returns < self.returns and other.channel == self.channel
        return other != self and other.channel == self.channel and other.batch <= self.batch and other.done <= self.done


def low_water_of(names: Iterable[str]) -> list[LowWater]:
    """Return the readers' marks with these names; other names are passed over."""
    matches = (match for match in map(_LOW_WATER.fullmatch, names) if match is not None)
    return [LowWater(int(each[1]), int(each[2]), int(each[3]), int(each[4] or 0)) for each in matches]


def returns_of(marks: Iterable[LowWater]) -> int:
    """Return how many times the log has returned to a savepoint."""
    return max((mark.returns for mark in marks), default=0)


def needed(marks: Iterable[LowWater], channels: int) -> list[tuple[int, int]]:
    """Return for each channel the batch below which it needs none, and the batch below which it has read all."""
    marks = list(marks)
    returns, counting = returns_of(marks), [(0, 0)] * channels
    for mark in marks:
        if mark.channel < channels and mark.returns == returns:
            batch, done = counting[mark.channel]
            counting[mark.channel] = max(batch, mark.batch), max(done, mark.done)
    return counting


def kept_name(batch: int, savepoint: str) -> str:
    """Return the name of a savepoint's mark."""
    return f"{batch:010d}-{savepoint}"


def kept_of(names: Iterable[str]) -> dict[str, int]:
    """Return the lowest batch that each savepoint needs, by the savepoint's name."""
    lowest: dict[str, int] = {}
    for match in map(_KEPT.fullmatch, names):
        if match is not None:
            lowest[match[2]] = min(int(match[1]), lowest.get(match[2], int(match[1])))
    return lowest


def exceeding(kept: Mapping[str, int], sizes: Iterable[tuple[int, int]], bytes_max: int) -> list[str]:
    """Return the savepoints since which more than `bytes_max` was published, the oldest first.

    Args:
        kept: the lowest batch that each savepoint needs.
        sizes: (batch, size) of all published segments.
    """
    ordered = sorted(sizes)
    batches, sums = [batch for batch, _ in ordered], [0, *accumulate(size for _, size in ordered)]
    since = {name: sums[-1] - sums[bisect_left(batches, lowest)] for name, lowest in kept.items()}
    return [name for name, _ in sorted(kept.items(), key=itemgetter(1, 0)) if since[name] > bytes_max]
