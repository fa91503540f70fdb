"""Measures how long rows take from the moment their element was due to the commit that made them visible."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.harness.zero_point import check_not_early
from benchmarks.jobs import stamped_ledger
from benchmarks.jobs.stamped_sink import Stamp

WINDOW_NS, STEP_NS = 100_000_000, 10_000_000
NEAR = 1.1
"""Latency is back when the median of a window is at most this many times what it was before."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Elements of one task by the time they entered."""

    origins_ns: Sequence[int]
    took_ns: Sequence[int]

    def median_ns(self, start_ns: int, end_ns: int) -> float | None:
        """Return the median of what entered from `start_ns` on and before `end_ns`; None for nothing."""
        first, last = bisect_left(self.origins_ns, start_ns), bisect_left(self.origins_ns, end_ns)
        return median(self.took_ns[first:last]) if last > first else None

    def back_ms(self, moment_ns: int, before_ns: float, limit_ns: int) -> float | None:
        """Return milliseconds until the end of the first window that is as fast as before; None for none up to the
        limit.
        """
        for start_ns in range(moment_ns, limit_ns - WINDOW_NS, STEP_NS):
            middle = self.median_ns(start_ns, start_ns + WINDOW_NS)
            if middle is not None and middle <= NEAR * before_ns:
                return (start_ns + WINDOW_NS - moment_ns) / 1e6
        return None


def latencies(
    rows: Sequence[stamped_ledger.Row], stamps: Sequence[Stamp], task: int, began_ns: int, interval_ns: float
) -> Latencies:
    """Return the latencies of one counting task's rows.

    Args:
        task: index of the counting task.
        began_ns: the time at which the first element of each partition was due.
        interval_ns: between two elements of a partition.

    Raises:
        RunFailed: a row was seen before its element was due, so `began_ns` is not that time.
    """
    seen = [
        (int(i * interval_ns), stamp.at_ns)
        for stamp in stamps
        for counter, _, _, _, i in rows[stamp.first : stamp.first + stamp.count]
        if counter == task
    ]
    check_not_early(at_ns - offset_ns - began_ns for offset_ns, at_ns in seen)
    entered = sorted((began_ns + offset_ns, at_ns - began_ns - offset_ns) for offset_ns, at_ns in seen)
    return Latencies([origin for origin, _ in entered], [took for _, took in entered])
