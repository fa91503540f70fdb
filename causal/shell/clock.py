"""The real clock and the real entropy: what `causal.ports.Live` is in a process.

Taken when this module is loaded: what `operators.capture` later routes to the causal services ends here.
"""

from __future__ import annotations

import os
import time


class RealLive:
    """Wall clock in nanoseconds since 1970, and 16 bytes from the kernel."""

    _wall_ns = staticmethod(time.time_ns)
    _urandom = staticmethod(os.urandom)

    def wall_ns(self) -> int:
        return self._wall_ns()

    def entropy(self) -> bytes:
        return self._urandom(16)


def monotonic_ns() -> int:
    """One clock for all processes of a host (CLOCK_MONOTONIC)."""
    return time.monotonic_ns()
