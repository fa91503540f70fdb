"""The decisions of `causal rescale --auto`: which operator gets more or fewer tasks, and when.  Pure.

An operator gets more tasks while its tasks work for more than a share of their time, and fewer if these would clearly
stay below that share.  Both compare the same work, so no load that stays the same, and none that only rises, makes an
operator that has grown shrink again, or the reverse.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CLEARLY = 0.9
"""The part of the busy share below which an operator stays after it has shrunk."""

SAMPLES_MAX = 60
"""The number of samples that are kept from the time over which shares are measured."""

REST_MAX_S = 900.0
"""The longest rest after changes that have failed, unless the shares are measured over a longer time."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The shares of time between which the number of tasks stays.

    Attributes:
        for_s: the time over which shares are measured, and for which an operator rests after a change.
    """

    busy: float = 0.8
    idle: float = 0.3
    for_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest number of tasks of an operator."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Spent:
    """The time that a task has worked, and that it has existed; time in which it waits is no work."""

    busy_s: float
    whole_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """The number of tasks of an operator, and the time that the processes which perform them have spent."""

    tasks: int
    spent: Sequence[Spent]


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of a job all of whose tasks run.

    Attributes:
        incarnations: those of all tasks of the job; figures of other incarnations are not comparable.
    """

    at_s: float
    incarnations: tuple[int, ...]
    loads: Mapping[str, Load]


@dataclass(frozen=True, slots=True)
class Decision:
    """The number of tasks that an operator is to have, and the reason."""

    operator: str
    tasks: int
    reason: str


class Scaling:
    """The decisions about the operators of a job, of which at most one changes at a time.

    Args:
        bounds: those of each operator; earlier ones are changed first.
    """

    def __init__(self, thresholds: Thresholds, bounds: Mapping[str, Bounds]) -> None:
        self._thresholds = thresholds
        self._bounds = bounds
        self._samples: deque[Sample] = deque()
        self._failures = 0
        self._rest_s = 0.0
        """The rest that begins with the next sample."""
        self._rests_until_s = float("-inf")

    @property
    def operators(self) -> list[str]:
        """The operators that have bounds."""
        return [*self._bounds]

    def take(self, sample: Sample) -> Decision | None:
        """Return the change that is due after a sample, which is later than the previous one."""
        if self._samples and self._samples[-1].incarnations != sample.incarnations:
            self.interrupt()
        if self._rest_s:
            self._rests_until_s, self._rest_s = sample.at_s + self._rest_s, 0.0
        if sample.at_s < self._rests_until_s:
            return None
        for_s = self._thresholds.for_s
        if self._samples and sample.at_s - self._samples[-1].at_s < for_s / SAMPLES_MAX:
            return None
        self._samples.append(sample)
        while len(self._samples) > 1 and sample.at_s - self._samples[1].at_s >= for_s:
            self._samples.popleft()
        decisions = [each for name in self._bounds if (each := self._decision(name, sample.loads[name])) is not None]
        more = (each for each in decisions if each.tasks > sample.loads[each.operator].tasks)
        return next(more, next(iter(decisions), None))

    def interrupt(self) -> None:
        """Drop the samples, because tasks recover or have changed."""
        self._samples.clear()

    def changed(self) -> None:
        """Record that the last decision has been carried out."""
        self.interrupt()
        self._failures, self._rest_s = 0, self._thresholds.for_s

    def failed(self) -> float:
        """Record that the last decision could not be carried out; return the rest, which doubles with each failure."""
        self.interrupt()
        self._failures += 1
        for_s = self._thresholds.for_s
        self._rest_s = min(for_s * 2.0 ** min(self._failures, 32), max(REST_MAX_S, for_s))
        return self._rest_s

    def _decision(self, operator: str, load: Load) -> Decision | None:
        bounds, thresholds = self._bounds[operator], self._thresholds
        if not bounds.least <= load.tasks <= bounds.most:
            tasks = min(max(load.tasks, bounds.least), bounds.most)
            return Decision(operator, tasks, f"it had {load.tasks}, outside {bounds.least}..{bounds.most}")
        shares = self._shares(operator)
        if not shares:
            return None
        mean = sum(shares) / len(shares)
        more, fewer = min(2 * load.tasks, bounds.most), max((load.tasks + 1) // 2, bounds.least)
        reason = f"its tasks worked for {mean * 100:.0f} % of the last {thresholds.for_s:g} s"
        if mean > thresholds.busy and more > load.tasks:
            return Decision(operator, more, reason)
        expected = mean * load.tasks / fewer
        # A task that works all the time hides how much more it has to do, so it says nothing about fewer tasks.
        measured = max(shares) <= thresholds.busy
        if mean < thresholds.idle and expected <= CLEARLY * thresholds.busy and measured and fewer < load.tasks:
            return Decision(operator, fewer, reason)
        return None

    def _shares(self, operator: str) -> list[float]:
        """Return the share of its time that each process of an operator has worked; empty if it is not known yet.

        Processes report at intervals, and a supervisor that has just started has not heard from all of them, so the
        reported time must roughly be the time between the samples.
        """
        first, last = self._samples[0], self._samples[-1]
        elapsed_s = last.at_s - first.at_s
        if elapsed_s < self._thresholds.for_s:
            return []
        shares: list[float] = []
        for before, now in zip(first.loads[operator].spent, last.loads[operator].spent, strict=True):
            whole_s = now.whole_s - before.whole_s
            if not 0.5 * elapsed_s <= whole_s <= 1.5 * elapsed_s:
                return []
            shares.append(min(1.0, max(0.0, (now.busy_s - before.busy_s) / whole_s)))
        return shares
