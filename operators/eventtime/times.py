"""Event times: seconds or datetimes as users give them, whole microseconds in ns inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from operators.seconds import LATEST_S, all_ns_of_seconds, ns_of_seconds
from operators.stages import apply, without

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PLAIN = frozenset((int, float))


def ns_of(told: Any) -> int:
    """A time in ns: seconds since 1970 (int, float) or a datetime (naive: UTC), to the microsecond.

    Raises:
        TypeError, ValueError: it is no time.
    """
    if isinstance(told, datetime):
        aware = told if told.utcoffset() is not None else told.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MICROSECOND * 1000
    if isinstance(told, bool) or not isinstance(told, (int, float)):
        raise TypeError(f"a time is {told!r}; give seconds since 1970 (int or float), or a datetime")
    if not isfinite(told) or not -LATEST_S < told < LATEST_S:
        raise ValueError(f"a time is {told!r}; give seconds since 1970, before 2255")
    return ns_of_seconds(told)


def times_of(
    time_of: Callable[[Any], Any], records: Sequence[Any], failed: Callable[[int, Exception], None]
) -> tuple[list[int], list[int]]:
    """The time of each record in ns, and the indices of those without, which `failed` was told (it may raise)."""
    told, lost = apply(time_of, records, failed)
    if _PLAIN.issuperset(map(type, told)):
        plain = all_ns_of_seconds(told)
        if plain is not None:
            return plain, lost
    places: Sequence[int] = without(range(len(records)), lost) if lost else range(len(records))
    times, vague = apply(ns_of, told, lambda index, problem: failed(places[index], problem))
    return times, sorted([*lost, *(places[index] for index in vague)])
