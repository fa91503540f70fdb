"""The real clock and the real entropy: what `causal.ports.Environment` is in a process.

The functions are taken when this module is loaded: what `operators.capture` later routes to the causal services ends
here.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
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

_offset_ns = 0


def monotonic_ns() -> int:
    """Reads the clock that all processes of a job share: CLOCK_MONOTONIC, on another host moved to the supervisor's."""
    return time.monotonic_ns() + _offset_ns


def of_job(local_ns: int) -> int:
    """Returns a moment of this host's own clock (`time.monotonic_ns()`) in the job's time; 0 stays 0, for none."""
    return local_ns + _offset_ns if local_ns else 0


def of_host(job_ns: int) -> int:
    """Returns a moment of the job's time in this host's own clock."""
    return job_ns - _offset_ns


def take_offset(directory: Path) -> None:
    """Takes the offset that the agent has measured: once, as a clock that is moved later could go back."""
    global _offset_ns
    with suppress(FileNotFoundError, ValueError):
        _offset_ns = int((directory / OFFSET).read_text())


def save_offset(directory: Path, offset_ns: int) -> None:
    """Replaces the offset for processes that start from now on."""
    fresh = directory / (OFFSET + ".new")
    fresh.write_text(str(offset_ns))
    os.replace(fresh, directory / OFFSET)
