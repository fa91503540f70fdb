"""The real clock and entropy source: the implementation of `causal.ports.Environment` in a process.

The clock functions are bound when this module is loaded, because `operators.capture` later redirects the original
functions to the causal services, which call this module.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


class SystemEnvironment:
    """The wall clock in nanoseconds since 1970, and 16 random bytes from the kernel."""

    _wall_ns = staticmethod(time.time_ns)
    _urandom = staticmethod(os.urandom)

    def wall_ns(self) -> int:
        return self._wall_ns()

    def entropy(self) -> bytes:
        return self._urandom(16)


OFFSET = "clock_offset"
"""The file in a host's job directory with the offset from its clock to the supervisor's clock, in nanoseconds."""

SLEW = 500
"""The rate of correction: a corrected clock gains or loses one unit in this many. This is faster than clocks drift
apart, and time never moves backwards."""


@dataclass(frozen=True, slots=True)
class Correction:
    """The offset of this host's clock while it changes gradually from one measurement to the next."""

    since_ns: int = 0
    """The time on this host's clock at which the change from `start_ns` began."""
    start_ns: int = 0
    goal_ns: int = 0

    def at(self, local_ns: int) -> int:
        """Return the offset at the given time on this host's clock."""
        if self.start_ns == self.goal_ns:
            return self.goal_ns
        most_ns = max(0, local_ns - self.since_ns) // SLEW
        return self.start_ns + max(-most_ns, min(most_ns, self.goal_ns - self.start_ns))

    def toward(self, goal_ns: int, local_ns: int) -> Correction:
        """Return the correction that changes to a new measurement, starting at the given time on this host's clock."""
        return Correction(local_ns, self.at(local_ns), goal_ns)


_correction: Correction | None = None


def _offset_at(local_ns: int) -> int:
    return _correction.at(local_ns) if _correction is not None else 0


def monotonic_ns() -> int:
    """Read the clock that all processes of a job share.

    It is CLOCK_MONOTONIC, which is converted on other hosts to the clock of the supervisor's host.
    """
    local_ns = time.monotonic_ns()
    return local_ns if _correction is None else local_ns + _correction.at(local_ns)


def of_job(local_ns: int) -> int:
    """Convert a time on this host's clock (`time.monotonic_ns()`) to job time; 0 means no time and stays 0."""
    return local_ns + _offset_at(local_ns) if local_ns else 0


def of_host(job_ns: int) -> int:
    """Convert a job time to this host's clock."""
    return job_ns - _offset_at(time.monotonic_ns())


def take_offset(directory: Path) -> None:
    """Adopt the offset measured by the agent: the first immediately, and later ones slowly enough that no time repeats.

    Two clocks drift apart by seconds per day, so a process calls this function repeatedly.
    """
    global _correction
    measured_ns = read_offset(directory)
    if measured_ns is None:
        return
    before = _correction or Correction(start_ns=measured_ns, goal_ns=measured_ns)
    _correction = before.toward(measured_ns, time.monotonic_ns())


def read_offset(directory: Path) -> int | None:
    """Return the offset that the agent measured last; None on the supervisor's host or before the first measurement."""
    try:
        return int((directory / OFFSET).read_text())
    except (FileNotFoundError, ValueError):
        return None


def save_offset(directory: Path, offset_ns: int) -> None:
    """Replace the offset file, which the processes of the host read."""
    fresh = directory / (OFFSET + ".new")
    fresh.write_text(str(offset_ns))
    os.replace(fresh, directory / OFFSET)
