"""The difference between this host's monotonic clock and the supervisor's, from round trips: no I/O, times are passed
in.

Monotonic clocks have no common origin, so a time of one means nothing on another host. Each answer of the supervisor
has the time at which it was written, and lies between two readings here: half of the shortest round trip bounds the
error.
"""

from __future__ import annotations

from collections import deque

SAMPLES = 64
"""The round trips that the offset is chosen from: clocks drift apart, so old ones are dropped."""

SETTLED_SAMPLES = 10
"""Round trips after which one is probably short."""


class ClockOffset:
    """The offset that turns a time of this host into one of the supervisor, in nanoseconds.

    Args:
        measured_ns: what an agent before this one has measured last, on the same clock.
    """

    def __init__(self, measured_ns: int | None = None) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES)
        self.known = measured_ns is not None
        self.offset_ns = measured_ns or 0
        self.error_ns = 0
        """The largest possible error of the offset; 0 before the first sample."""

    def sample(self, sent_ns: int, at_ns: int, received_ns: int) -> None:
        """Record one round trip: sent and received here, answered there in between."""
        round_trip_ns = received_ns - sent_ns
        if round_trip_ns < 0:
            return  # an answer to a process before this one
        self._samples.append((round_trip_ns, at_ns - (sent_ns + received_ns) // 2))
        shortest_ns, self.offset_ns = min(self._samples)
        self.error_ns = (shortest_ns + 1) // 2
        self.known = True

    @property
    def settled(self) -> bool:
        """Whether there are enough samples that the next ones can wait."""
        return len(self._samples) >= SETTLED_SAMPLES
