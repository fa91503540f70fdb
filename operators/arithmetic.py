"""One rule about NaN and zero for every aggregate, of rows and of vectors.

There is one NaN per type (the positive quiet one), whatever operation made it, and one zero, which is positive.  NaN
stays: the sum, mean, least or greatest of numbers of which one is NaN is NaN, until that number is taken back.  Of
numbers that are equal but written differently (1 and 1.0, Decimal("2.5") and Decimal("2.50")) the choice depends on
what they are, never on which of them came first.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Any

from causal.values import NotCarried, encode

NAN = float("nan")
NAN_DECIMAL = Decimal("NaN")
_ONE_SPELLING = frozenset((int, str, bytes, bool))
"""Types of which two equal values are the same bytes."""


def settled(value: Any) -> Any:
    """The value, with the one NaN of its type for any NaN and positive zero for any zero."""
    kind = type(value)
    if kind is float:
        return value + 0.0 if value == value else NAN
    if kind is Decimal:
        if value.is_nan():
            return NAN_DECIMAL
        return value if value else value.copy_abs()
    return value


def is_nan(value: Any) -> bool:
    """Whether the value is a NaN of float or Decimal."""
    kind = type(value)
    return bool(value != value) if kind is float else kind is Decimal and bool(value.is_nan())


def checked(value: Any, operator: str) -> Any:
    """`settled(value)`, which can be put in order.

    Raises:
        ValueError: a tuple or list holds NaN, so nothing is less or greater than it.
    """
    if type(value) in (tuple, list) and _holds_nan(value):
        raise ValueError(f"{operator} of {value!r:.80}, which holds NaN and has no place in any order; filter it out")
    return settled(value)


def _holds_nan(value: Any) -> bool:
    return any(map(_holds_nan, value)) if type(value) in (tuple, list) else is_nan(value)


def spelling(value: Any) -> tuple[str, bytes]:
    """Orders values that are equal by how they are written: by type, then by encoding."""
    try:
        return type(value).__name__, encode(value)
    except NotCarried:
        return type(value).__name__, b""


def same_spelling(first: Any, second: Any) -> bool:
    """Whether two equal values are written alike, as far as can be seen without encoding them."""
    return type(first) is type(second) and type(first) in _ONE_SPELLING


def extreme(first: Any, second: Any, least: bool) -> Any:
    """The lesser or the greater of two values that are `checked`; NaN wins, and of equal ones a fixed one."""
    nans = is_nan(first), is_nan(second)
    if nans[0] is not nans[1]:
        return first if nans[0] else second
    if nans[0] or first == second:
        if same_spelling(first, second):
            return first
        return first if spelling(first) <= spelling(second) else second
    return first if (first < second) is least else second


# Totals from which values are taken back.

_FINITE, _NANS, _ABOVE, _BELOW = range(4)
Total = Any
"""A number, or while infinities or NaN are in it: [sum of the finite ones, NaNs, infinities, negative infinities]."""


def shifted(total: Total, value: Any, sign: int) -> Total:
    """The total with a number more (`sign` 1) or less (-1): what is not finite is counted, so it can be taken back."""
    if type(total) is not list:
        if _is_finite(value):
            return total + value if sign > 0 else total - value
        total = [total, 0, 0, 0]
    counts = list(total)
    if _is_finite(value):
        counts[_FINITE] = counts[_FINITE] + value if sign > 0 else counts[_FINITE] - value
    else:
        counts[_NANS if value != value else _ABOVE if value > 0 else _BELOW] += sign
    return counts if any(counts[_NANS:]) else counts[_FINITE]


def total_of(total: Total) -> Any:
    """The number that a total amounts to."""
    if type(total) is not list:
        return settled(total)
    of: Callable[[str], Any] = Decimal if type(total[_FINITE]) is Decimal else float
    if total[_NANS] or (total[_ABOVE] and total[_BELOW]):
        return settled(of("nan"))
    return of("inf") if total[_ABOVE] else of("-inf")


def _is_finite(value: Any) -> bool:
    kind = type(value)
    return isfinite(value) if kind is float else value.is_finite() if kind is Decimal else True
