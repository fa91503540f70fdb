"""The only conversion between seconds, which users write and see, and nanoseconds, which all internal code uses.

Internally, a user's time or duration is a whole number of microseconds. Until the year 2242, a float of seconds
distinguishes any two microseconds. Converting seconds to nanoseconds and back therefore yields the same float: a window
bound, a timer, or an event time that is read back from a record equals the number that was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

NS_PER_S = 1_000_000_000
_PLAIN_S = float(1 << 32)
"""The limit below which the float product of seconds and one million is off by less than half a microsecond."""
LATEST_S = 9_000_000_000.0
"""A time in the year 2255, which still fits into 63 bits when expressed in nanoseconds."""
LATEST_NS = 9_000_000_000 * NS_PER_S


def seconds_of(at_ns: int) -> float:
    """Return the float of seconds nearest to `at_ns` nanoseconds; the division rounds only once."""
    return at_ns / NS_PER_S


def ns_of_seconds(at_s: float) -> int:
    """Convert seconds to nanoseconds, rounded to the nearest microsecond."""
    if -_PLAIN_S < at_s < _PLAIN_S:
        return round(at_s * 1e6) * 1000
    return round(Fraction(at_s) * 1_000_000) * 1000


def all_ns_of_seconds(seconds: Sequence[float]) -> list[int] | None:
    """Return `ns_of_seconds` of each time, or None if the times must be converted one by one."""
    if seconds and not (min(seconds) > -_PLAIN_S and max(seconds) < _PLAIN_S):
        return None
    try:
        return [round(at_s * 1e6) * 1000 for at_s in seconds]
    except ValueError:  # one of the times is NaN
        return None
