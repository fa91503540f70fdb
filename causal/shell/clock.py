"""The real clock and the real entropy: what `causal.ports.Environment` is in a process.

The functions are taken when this module is loaded: what `operators.capture` later routes to the causal services ends
here.
"""

from __future__ import annotations

import os
import time


class SystemEnvironment:
    """The wall clock in nanoseconds since 1970, and 16 random bytes from the kernel."""

    _wall_ns = staticmethod(time.time_ns)
    _urandom = staticmethod(os.urandom)

    def wall_ns(self) -> int:
        return self._wall_ns()

    def entropy(self) -> bytes:
        return self._urandom(16)


def monotonic_ns() -> int:
    """Reads the clock that all processes of a host share (CLOCK_MONOTONIC)."""
    return time.monotonic_ns()
