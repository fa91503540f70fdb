"""The arithmetic of all aggregates, on rows and on vectors, with one rule for NaN and zero.

Each type has only one NaN (the positive quiet NaN), regardless of its origin, and only one zero, which is positive. NaN
persists: the sum, mean, minimum or maximum of numbers that include a NaN is NaN until that NaN is retracted. The choice
between numbers that are equal but written differently (1 and 1.0, Decimal("2.5") and Decimal("2.50")) depends on their
spelling, never on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, getcontext
from itertools import accumulate
from math import isfinite
from operator import index
from typing import Any

from causal.records.values import NotCarried, encode

NAN = float("nan")
NAN_DECIMAL = Decimal("NaN")
_ONE_SPELLING = frozenset((int, str, bytes, bool))
"""Types for which equal values have the same encoding."""


def settled(value: Any) -> Any:
    """Return the value, with any NaN replaced by the only NaN of its type and any zero by positive zero."""
    kind = type(value)
    if kind is float:
        return value + 0.0 if value == value else NAN
    if kind is Decimal:
        if value.is_nan():
            return NAN_DECIMAL
        return value if value else value.copy_abs()
    return value


def is_nan(value: Any) -> bool:
    """Return whether the value is a float or Decimal NaN."""
    kind = type(value)
    return bool(value != value) if kind is float else kind is Decimal and bool(value.is_nan())


def checked(value: Any, operator: str) -> Any:
    """Return `settled(value)`, which can be compared with other values.

    Raises:
        ValueError: the value is a tuple or list that contains NaN, so it cannot be ordered.
    """
    if type(value) in (tuple, list) and _holds_nan(value):
        raise ValueError(
            f"{operator} of {value!r:.80}, which contains NaN and therefore cannot be ordered; filter it out"
        )
    return settled(value)


def _holds_nan(value: Any) -> bool:
    return any(map(_holds_nan, value)) if type(value) in (tuple, list) else is_nan(value)


def spelling(value: Any) -> tuple[str, bytes]:
    """Return the sort key that orders equal values with different spellings by type and then by encoding."""
    try:
        return type(value).__name__, encode(value)
    except NotCarried:
        return type(value).__name__, b""


def same_spelling(first: Any, second: Any) -> bool:
    """Return whether two equal values are known, without encoding them, to have the same spelling."""
    return type(first) is type(second) and type(first) in _ONE_SPELLING


def extreme(first: Any, second: Any, least: bool) -> Any:
    """Return the lesser or greater of two `checked` values.

    The result is NaN if one of the values is NaN. The spelling of two equal values determines which of them is
    returned.
    """
    nans = is_nan(first), is_nan(second)
    if nans[0] is not nans[1]:
        return first if nans[0] else second
    if nans[0] or first == second:
        if same_spelling(first, second):
            return first
        return first if spelling(first) <= spelling(second) else second
    return first if (first < second) is least else second


# Totals from which values can be retracted.

_WHOLE, _NANS, _ABOVE, _BELOW, _DECIMALS, _FLOATS, _SCALED, _BITS, _TENS = range(9)
_UNCOUNTED = 1 << 40
"""The assumed number of floats or Decimals in a total of an old snapshot, greater than any number of retractions."""
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
Total = Any
"""An exact total, which is an int if only ints were added; otherwise it is a list with the following items.

The items are the sum of the ints; the numbers of NaNs, of infinities, of negative infinities, of Decimals and of finite
floats; the sum of the floats times 2 ** bits; bits; and {exponent: [sum of the coefficients of the Decimals with that
exponent, number of these Decimals]}. A total from an older version is a number, or the list [finite sum, number of
NaNs, of infinities, of negative infinities, and possibly of Decimals]."""


def shifted(total: Total, value: Any, sign: int) -> Total:
    """Return the total plus (`sign` 1) or minus (`sign` -1) a number; a retracted number leaves no trace.

    Raises:
        TypeError: the total would contain both a Decimal and a float, which cannot be added.
    """
    if type(total) is int and type(value) is int:
        return total + value if sign > 0 else total - value
    return _shifted(_parts(total), value, sign, 1)


def _shifted(parts: list[Any], value: Any, sign: int, number: int) -> Total:
    if not isinstance(value, (int, float, Decimal)):  # a NumPy number or a Fraction
        value = index(value) if hasattr(value, "__index__") else float(value)
    is_decimal, is_float = isinstance(value, Decimal), isinstance(value, float)
    if not _is_finite(value):
        parts[_NANS if value != value else _ABOVE if value > 0 else _BELOW] += sign * number
    elif parts[_TENS] and is_float or parts[_FLOATS] and is_decimal:
        raise TypeError(f"the sum has floats and Decimals, such as {value!r:.80}; convert them to one type")
    elif is_float:
        _shift_float(parts, value, sign, number)
    elif is_decimal:
        _, digits, exponent = value.as_tuple()
        coefficient = int(_EXACT.scaleb(value, -exponent))
        parts[_TENS] = tens = parts[_TENS].copy()
        known, count = tens.pop(exponent, (0, 0))
        entry = [known + sign * coefficient, count + sign * number]
        if any(entry):
            tens[exponent] = entry
    else:
        parts[_WHOLE] = parts[_WHOLE] + value if sign > 0 else parts[_WHOLE] - value
    if is_decimal:
        parts[_DECIMALS] += sign * number
        # An older version of this package added ints to the Decimals.
        if not parts[_DECIMALS] and parts[_TENS]:
            parts[_WHOLE], parts[_TENS] = int(_decimal_of(parts)), {}
    return parts if any(parts[_NANS:_SCALED]) else parts[_WHOLE]


def _shift_float(parts: list[Any], value: float, sign: int, number: int) -> None:
    parts[_FLOATS] += sign * number
    numerator, denominator = value.as_integer_ratio()
    value_bits, bits = denominator.bit_length() - 1, parts[_BITS]
    most = bits if bits > value_bits else value_bits
    scaled = (parts[_SCALED] << most - bits) + sign * (numerator << most - value_bits)
    parts[_SCALED], parts[_BITS] = (scaled, most) if parts[_FLOATS] else (0, 0)


def _parts(total: Total) -> list[Any]:
    """Return a copy of a total in the list form that `Total` describes."""
    if type(total) is list and len(total) > _TENS:
        return total.copy()
    known, *counts = total if type(total) is list else [total]
    parts = [0, *counts, 0, 0, 0, 0][:_FLOATS] + [0, 0, 0, {}]
    if type(known) not in (float, Decimal):
        return [known, *parts[1:]]
    _shifted(parts, known, 1, _UNCOUNTED)
    if type(known) is Decimal and len(counts) == _DECIMALS:
        parts[_DECIMALS] = counts[-1]
    return parts


def total_of(total: Total) -> Any:
    """Return the value of a total after a single rounding."""
    if type(total) is int:
        return total
    parts = _parts(total)
    of: Callable[[str], Any] = Decimal if parts[_DECIMALS] else float
    if parts[_NANS] or (parts[_ABOVE] and parts[_BELOW]):
        return settled(of("nan"))
    if parts[_ABOVE] or parts[_BELOW]:
        return of("inf") if parts[_ABOVE] else of("-inf")
    if parts[_DECIMALS]:
        return settled(_decimal_of(parts))
    if not parts[_FLOATS]:
        return settled(parts[_WHOLE])
    scaled = parts[_SCALED] + (parts[_WHOLE] << parts[_BITS])
    try:
        return settled(scaled / (1 << parts[_BITS]))
    except OverflowError:
        return of("inf") if scaled > 0 else of("-inf")


def _decimal_of(parts: list[Any]) -> Decimal:
    """Return the sum of the Decimals and ints after a single rounding to the precision of the context.

    The exponents may be too far apart for the sum to fit into one int. Therefore, terms are added in descending order
    of their exponents, until a gap is so wide that only the sign of the remaining terms matters.
    """
    terms = {exponent: coefficient for exponent, (coefficient, _) in parts[_TENS].items()}
    terms[0] = terms.get(0, 0) + parts[_WHOLE]  # a sum begins at 0, so its exponent is at most the exponent of 0
    exponents, context = sorted(terms), getcontext().copy()
    context.clear_traps()
    room = context.prec + len(terms).bit_length() + 2
    tops = list(accumulate((each + terms[each].bit_length() // 3 + 1 for each in exponents), max))
    sums, at = [[0, exponents[-1]]], exponents[-1]
    for exponent, top in zip(reversed(exponents), reversed(tops), strict=True):
        if sums[-1][0] and sums[-1][1] - top > room:
            sums.append([0, exponent])
        total, at = sums[-1]
        sums[-1] = [total * 10 ** (at - exponent) + terms[exponent] if total else terms[exponent], exponent]
    (total, at), *rest = sums
    if at > exponents[0]:
        more = min(at - exponents[0], room)
        behind = rest[0][0] if rest else 0
        total, at = total * 10**more + (behind > 0) - (behind < 0), at - more
    return context.plus(_EXACT.scaleb(Decimal(total), at))


def _is_finite(value: Any) -> bool:
    return isfinite(value) if isinstance(value, float) else value.is_finite() if isinstance(value, Decimal) else True
