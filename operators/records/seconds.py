"""The single conversion between seconds, as users write and see them, and nanoseconds, which all code inside counts.

Inside, a time or a duration from a user is whole microseconds. Up to the year 2242 a float of seconds distinguishes any
two microseconds, and there the way from seconds to nanoseconds and back yields the same float: a bound of a window, a
timer or an event time read back from a record is the number that was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

NS_PER_S = 1_000_000_000
_PLAIN_S = float(1 << 32)
"""The limit of seconds whose product with a million in floats is off by less than half a microsecond."""
LATEST_S = 9_000_000_000.0
"""A time in the year 2255: nanoseconds stay within 63 bits."""
LATEST_NS = 9_000_000_000 * NS_PER_S


def seconds_of(at_ns: int) -> float:
    """Return the float of seconds nearest to that many nanoseconds: a division of whole numbers, which is rounded
    once.
    """
    return at_ns / NS_PER_S


def ns_of_seconds(at_s: float) -> int:
    """Return seconds in ns, rounded to the nearest microsecond."""
    if -_PLAIN_S < at_s < _PLAIN_S:
        return round(at_s * 1e6) * 1000
    return round(Fraction(at_s) * 1_000_000) * 1000


def all_ns_of_seconds(seconds: Sequence[float]) -> list[int] | None:
    """Return the `ns_of_seconds` of each; None where they have to be computed one by one, e.g. where one is no
    number.
    """
    if seconds and not (min(seconds) > -_PLAIN_S and max(seconds) < _PLAIN_S):
        return None
    try:
        return [round(at_s * 1e6) * 1000 for at_s in seconds]
    except ValueError:  # a NaN is among them
        return None
