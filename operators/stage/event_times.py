"""Conversion of event times from users' seconds or datetimes to nanoseconds, rounded to whole microseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from operators.records.seconds import LATEST_NS, LATEST_S, all_ns_of_seconds, ns_of_seconds
from operators.stage.stages import apply, without

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PLAIN = frozenset((int, float))


def ns_of(time: Any) -> int:
    """Convert seconds since 1970 (int, float) or a datetime (UTC if naive) to nanoseconds, in whole microseconds.

    Raises:
        TypeError, ValueError: the value is not a time.
    """
    if isinstance(time, datetime):
        aware = time if time.utcoffset() is not None else time.replace(tzinfo=UTC)
        at_ns = (aware - _EPOCH) // _MICROSECOND * 1000
        if not -LATEST_NS < at_ns < LATEST_NS:
            raise ValueError(f"a time is {time!r}; use one after 1684 and before 2255")
        return at_ns
    if isinstance(time, bool) or not isinstance(time, (int, float)):
        raise TypeError(f"a time is {time!r}; use seconds since 1970 (int or float), or a datetime")
    if not isfinite(time) or not -LATEST_S < time < LATEST_S:
        raise ValueError(f"a time is {time!r}; use seconds since 1970, before 2255")
    return ns_of_seconds(time)


def times_of(
    time_of: Callable[[Any], Any], records: Sequence[Any], failed: Callable[[int, Exception], None]
) -> tuple[list[int], list[int]]:
    """Return the times of records in ns, and the indices of records without one; call `failed` for the latter."""
    stated, lost = apply(time_of, records, failed)
    if _PLAIN.issuperset(map(type, stated)):
        plain = all_ns_of_seconds(stated)
        if plain is not None:
            return plain, lost
    places: Sequence[int] = without(range(len(records)), lost) if lost else range(len(records))
    times, vague = apply(ns_of, stated, lambda index, problem: failed(places[index], problem))
    return times, sorted([*lost, *(places[index] for index in vague)])
