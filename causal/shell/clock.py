"""The real clock and the real entropy: what `causal.ports.Live` is in a process."""

from __future__ import annotations

import os
import time


class RealLive:
    """Wall clock in nanoseconds since 1970, and 16 bytes from the kernel."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def entropy(self) -> bytes:
        return os.urandom(16)


def monotonic_ns() -> int:
    """One clock for all processes of a host (CLOCK_MONOTONIC)."""
    return time.monotonic_ns()
