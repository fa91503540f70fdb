"""The offset of this host's monotonic clock from the supervisor's, computed from round trips.  No I/O.

Monotonic clocks have no common origin, so a time on one host's clock is meaningless on another host. Each answer from
the supervisor contains the time at which it was written, which lies between two readings of this host's clock. Half of
the shortest round trip is therefore an upper bound on the error.
"""

from __future__ import annotations

from collections import deque

SAMPLES = 64
"""The number of round trips from which the offset is chosen: clocks drift apart, so old round trips are dropped."""

SETTLED_SAMPLES = 10
"""The number of round trips after which at least one is probably short."""


class ClockOffset:
    """The offset that converts a time on this host's clock to the supervisor's clock, in nanoseconds.

    Args:
        measured_ns: the last measurement of an earlier agent, on the same clock.
    """

    def __init__(self, measured_ns: int | None = None) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES)
        self.known = measured_ns is not None
        self.offset_ns = measured_ns or 0
        self.error_ns = 0
        """The largest possible error of the offset; 0 before the first sample."""

    def sample(self, sent_ns: int, at_ns: int, received_ns: int) -> None:
        """Record one round trip.  `sent_ns` and `received_ns` are on this host's clock, `at_ns` on the supervisor's."""
        round_trip_ns = received_ns - sent_ns
        if round_trip_ns < 0:
            return  # the answer was meant for an earlier process
        self._samples.append((round_trip_ns, at_ns - (sent_ns + received_ns) // 2))
        shortest_ns, self.offset_ns = min(self._samples)
        self.error_ns = (shortest_ns + 1) // 2
        self.known = True

    @property
    def settled(self) -> bool:
        """Whether there are enough samples that the next ones can wait."""
        return len(self._samples) >= SETTLED_SAMPLES
