"""The real clock and entropy: the implementation of `causal.ports.Environment` in a process.

The clock functions are bound when this module is loaded, because `operators.capture` later redirects the originals to
the causal services, which call this module.
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
"""The file in a host's job directory with the offset of its clock to the supervisor's, in nanoseconds."""

SLEW = 500
"""A corrected clock gains or loses one unit in this many: faster than clocks drift apart, and never backwards."""


@dataclass(frozen=True, slots=True)
class Correction:
    """The offset of this host's clock during its gradual change from one measurement to the next."""

    since_ns: int = 0
    """The time on this host's clock at which the change from `start_ns` began."""
    start_ns: int = 0
    goal_ns: int = 0

    def at(self, local_ns: int) -> int:
        """Return the offset at a time of this host's clock."""
        if self.start_ns == self.goal_ns:
            return self.goal_ns
        most_ns = max(0, local_ns - self.since_ns) // SLEW
        return self.start_ns + max(-most_ns, min(most_ns, self.goal_ns - self.start_ns))

    def toward(self, goal_ns: int, local_ns: int) -> Correction:
        """Return the correction that continues from a time of this host's clock to a new measurement."""
        return Correction(local_ns, self.at(local_ns), goal_ns)


_correction: Correction | None = None


def _offset_at(local_ns: int) -> int:
    return _correction.at(local_ns) if _correction is not None else 0


def monotonic_ns() -> int:
    """Read the clock that all processes of a job share: CLOCK_MONOTONIC, on another host moved to the supervisor's."""
    local_ns = time.monotonic_ns()
    return local_ns + _offset_at(local_ns)


def of_job(local_ns: int) -> int:
    """Convert a time of this host's clock (`time.monotonic_ns()`) to the job's time; 0 stays 0 and means no time."""
    return local_ns + _offset_at(local_ns) if local_ns else 0


def of_host(job_ns: int) -> int:
    """Convert a time of the job to this host's clock."""
    return job_ns - _offset_at(time.monotonic_ns())


def take_offset(directory: Path) -> None:
    """Adopt an offset that the agent has measured: the first immediately, later ones so slowly that no time repeats.

    Two clocks drift apart by seconds in a day, so a process does this repeatedly.
    """
    global _correction
    measured_ns = read_offset(directory)
    if measured_ns is None:
        return
    before = _correction or Correction(start_ns=measured_ns, goal_ns=measured_ns)
    _correction = before.toward(measured_ns, time.monotonic_ns())


def read_offset(directory: Path) -> int | None:
    """Return the offset that the agent measured last; None on the supervisor's host, or before a measurement."""
    try:
        return int((directory / OFFSET).read_text())
    except (FileNotFoundError, ValueError):
        return None


def save_offset(directory: Path, offset_ns: int) -> None:
    """Replace the offset file, which the processes of the host read."""
    fresh = directory / (OFFSET + ".new")
    fresh.write_text(str(offset_ns))
    os.replace(fresh, directory / OFFSET)
