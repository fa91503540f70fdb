"""The arithmetic of all aggregates, of rows and of vectors: one rule about NaN and zero.

There is one NaN per type (the positive quiet one), whatever its origin, and one zero, which is positive.  NaN stays:
the sum, mean, least or greatest of numbers of which one is NaN is NaN, until that number is retracted.  Of numbers that
are equal but written differently (1 and 1.0, Decimal("2.5") and Decimal("2.50")) the choice depends on their spelling,
never on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Any

from causal.records.values import NotCarried, encode

NAN = float("nan")
NAN_DECIMAL = Decimal("NaN")
_ONE_SPELLING = frozenset((int, str, bytes, bool))
"""Types of which two equal values have the same encoding."""


def settled(value: Any) -> Any:
    """Returns the value, with the one NaN of its type for any NaN and positive zero for any zero."""
    kind = type(value)
    if kind is float:
        return value + 0.0 if value == value else NAN
    if kind is Decimal:
        if value.is_nan():
            return NAN_DECIMAL
        return value if value else value.copy_abs()
    return value


def is_nan(value: Any) -> bool:
    """Returns whether the value is a NaN of float or Decimal."""
    kind = type(value)
    return bool(value != value) if kind is float else kind is Decimal and bool(value.is_nan())


def checked(value: Any, operator: str) -> Any:
    """Returns `settled(value)`, which can be compared.

    Raises:
        ValueError: a tuple or list holds NaN, so nothing is less or greater than it.
    """
    if type(value) in (tuple, list) and _holds_nan(value):
        raise ValueError(f"{operator} of {value!r:.80}, which holds NaN and has no place in any order; filter it out")
    return settled(value)


def _holds_nan(value: Any) -> bool:
    return any(map(_holds_nan, value)) if type(value) in (tuple, list) else is_nan(value)


def spelling(value: Any) -> tuple[str, bytes]:
    """Returns the sort key of equal values that are written differently: type, then encoding."""
    try:
        return type(value).__name__, encode(value)
    except NotCarried:
        return type(value).__name__, b""


def same_spelling(first: Any, second: Any) -> bool:
    """Returns whether two equal values are known to be written alike, without encoding them."""
    return type(first) is type(second) and type(first) in _ONE_SPELLING


def extreme(first: Any, second: Any, least: bool) -> Any:
    """Returns the lesser or the greater of two values that are `checked`; NaN wins, and of equal ones a fixed one."""
    nans = is_nan(first), is_nan(second)
    if nans[0] is not nans[1]:
        return first if nans[0] else second
    if nans[0] or first == second:
        if same_spelling(first, second):
            return first
        return first if spelling(first) <= spelling(second) else second
    return first if (first < second) is least else second


# Totals from which values can be retracted.

_FINITE, _NANS, _ABOVE, _BELOW, _DECIMALS = range(5)
_UNCOUNTED = 1 << 40
"""The Decimals in a total of a snapshot that did not count them: too many ever to be retracted, so it stays one."""
Total = Any
"""A number, or while it contains a Decimal, an infinity or NaN: [finite sum, NaNs, infinities, negative infinities,
Decimals]."""


def shifted(total: Total, value: Any, sign: int) -> Total:
    """Returns the total plus (`sign` 1) or less (-1) a number; what changes its type is counted, to be retractable."""
    if type(total) is not list:
        if type(value) is not Decimal and _is_finite(value):
            return total + value if sign > 0 else total - value
        total = [total, 0, 0, 0, _UNCOUNTED if type(total) is Decimal else 0]
    counts = [*total, _UNCOUNTED if type(total[_FINITE]) is Decimal else 0][: _DECIMALS + 1]
    if _is_finite(value):
        counts[_FINITE] = counts[_FINITE] + value if sign > 0 else counts[_FINITE] - value
    else:
        counts[_NANS if value != value else _ABOVE if value > 0 else _BELOW] += sign
    if type(value) is Decimal:
        counts[_DECIMALS] += sign
        if not counts[_DECIMALS] and _is_decimal(counts):  # the rest is whole: a Decimal and a float have no sum
            counts[_FINITE] = int(counts[_FINITE].to_integral_value())
    return counts if any(counts[_NANS:]) else counts[_FINITE]


def _is_decimal(counts: list[Any]) -> bool:
    return type(counts[_FINITE]) is Decimal


def total_of(total: Total) -> Any:
    """Returns the value of a total."""
    if type(total) is not list:
        return settled(total)
    if not any(total[_NANS:_DECIMALS]):
        return settled(total[_FINITE])
    of: Callable[[str], Any] = Decimal if _is_decimal(total) or any(total[_DECIMALS:]) else float
    if total[_NANS] or (total[_ABOVE] and total[_BELOW]):
        return settled(of("nan"))
    return of("inf") if total[_ABOVE] else of("-inf")


def _is_finite(value: Any) -> bool:
    kind = type(value)
    return isfinite(value) if kind is float else value.is_finite() if kind is Decimal else True
