"""Counts of durations in buckets, as in the histograms among the metrics."""

from __future__ import annotations

from bisect import bisect_left

from standby.supervision.job_view import DurationsView

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the buckets, in seconds; one more bucket counts longer durations."""


class Durations:
    """A histogram of the durations of one kind of event since the job began."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration; a negative duration, caused by clocks that differ, counts as zero."""
        seconds = max(seconds, 0.0)
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._sum_s += seconds

    def shown(self) -> DurationsView:
        """Return the count of each bucket, and the sum of all durations."""
        return DurationsView(list(self._counts), round(self._sum_s, 6))

    @classmethod
    def of(cls, shown: DurationsView) -> Durations:
        """Restore durations that `shown` returned; return an empty object if a version with other buckets wrote
        them.
        """
        durations = cls()
        if len(shown.counts) == len(BOUNDS_S) + 1:
            durations._counts, durations._sum_s = list(shown.counts), float(shown.sum_s)
        return durations
