"""The zero point of latencies: the time at which the first element of a paced source was due.

A latency counts from the time at which its element was due, so waiting because others are late counts.  That time is
`began + i * interval`, where the source itself reads `began` from the directory of its job.  The first element is read
later, by as long as the source needs to open: measured from there, latencies are too low.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.harness.runs import RunFailed
from causal.network.host_file import BEGAN


def began_ns(directory: Path) -> int:
    """Return the time, in monotonic ns, at which element 0 of each partition of a paced source was due.

    Args:
        directory: of the job.

    Raises:
        RunFailed: the job has not begun to read.
    """
    try:
        return int((directory / BEGAN).read_text())
    except (FileNotFoundError, ValueError):
        raise RunFailed(f"the job in {directory} has not begun to read") from None


def check_not_early(took_ns: Iterable[float]) -> None:
    """Refuse latencies below zero: nothing is seen before it is due, so they count from the wrong moment.

    Raises:
        RunFailed: there are some.
    """
    least_ns = min(took_ns, default=0)
    if least_ns < 0:
        raise RunFailed(f"an element was seen {-least_ns / 1e6:.1f} ms before it was due: the zero point is wrong")
