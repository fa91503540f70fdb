"""The rules for which values a column of an Arrow type can store; all other values are refused.

Arrow itself would accept more values and silently change them. A value can be stored if reading it back yields an equal
value. An integer may be read back as a float or decimal of the same value, a tuple as a list, a time with a zone as the
same instant in the column's zone, and a midnight without a zone as its date. Every conversion of values to columns uses
this module: `exact_array` for record values, `exact_vectors` for columns whose types Arrow infers, and `check_cast` for
columns that are cast to another type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from causal.records.vectors import Vectors

_Test = Callable[[pa.DataType], bool]
_KEPT: tuple[tuple[_Test, frozenset[type]], ...] = (
    (types.is_boolean, frozenset({bool})),
    (types.is_integer, frozenset({int})),
    (types.is_floating, frozenset({float, int})),
    (types.is_decimal, frozenset({Decimal, int})),
    (types.is_string, frozenset({str})),
    (types.is_large_string, frozenset({str})),
    (types.is_binary, frozenset({bytes, bytearray})),
    (types.is_large_binary, frozenset({bytes, bytearray})),
    (types.is_fixed_size_binary, frozenset({bytes, bytearray})),
    (types.is_timestamp, frozenset({datetime})),
    (types.is_date, frozenset({datetime})),
    (types.is_list, frozenset({list, tuple})),
    (types.is_large_list, frozenset({list, tuple})),
    (types.is_fixed_size_list, frozenset({list, tuple})),
    (types.is_struct, frozenset({dict})),
    (types.is_map, frozenset({dict})),
)
"""The Python types whose values a column of each Arrow type may store; any other column stores only nulls."""
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}
"""The number of microseconds per unit, for timestamp units that are coarser than microseconds."""


_SHOWN_CHARACTERS_MAX = 100
_REASON_CHARACTERS_MAX = 300


class Misfit(ValueError):
    """Raised for a record that does not fit; the message gives the reason, such as the column, type and value."""


def exact_array(place: str, kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Return the values as a column of this type.

    Args:
        place: the column's name, for error messages.
        values: the values of the column; None represents a missing value.

    Raises:
        Misfit: the column would change a value.
    """
    check_values(place, kind, values)  # first, because Arrow crashes on some nested values
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        value = _first_refused(kind, values)
        raise Misfit(
            f"column {place!r} has type {kind}, which cannot store {_shown(value)}: {reason_of(problem)}; {_REMEDY}"
        ) from None


def exact_vectors(rows: Any) -> Vectors:
    """Return the vectors in a record batch, a table, or a dict of columns.

    For columns that are lists, Arrow infers the type. It preserves values that all have the same type, but it may
    change values of mixed types.

    Raises:
        Misfit: a value in a list would be changed.
        NotCarried: vectors cannot contain the columns.
    """
    if type(rows) is dict:
        rows = {
            name: _inferred(str(name), values) if type(values) in (list, tuple) else values
            for name, values in rows.items()
        }
    return Vectors.of(rows)


def _inferred(place: str, values: Sequence[Any]) -> pa.Array:
    try:
        column = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        raise Misfit(f"column {place!r}: {reason_of(problem)}; give its values one type") from None
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) > 1 or kinds & {datetime, Decimal, dict, list, tuple}:
        check_values(place, column.type, values)
    return column


def reason_of(problem: Exception) -> str:
    """Return Arrow's reason for the problem as a single line."""
    return " ".join(str(problem).split())[:_REASON_CHARACTERS_MAX]


def _first_refused(kind: pa.DataType, values: Sequence[Any]) -> Any:
    """Return the first value that a column of this type does not accept."""
    for value in values:
        try:
            pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return value
    return None


_REMEDY = "convert it in a map upstream, or give the column another type"


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, datetime) else repr(value)
    return f"{text[:_SHOWN_CHARACTERS_MAX]}{'…' if len(text) > _SHOWN_CHARACTERS_MAX else ''}"


def _unkept(place: str, kind: pa.DataType, value: Any, why: str = "") -> Misfit:
    return Misfit(f"column {place!r} has type {kind}, which cannot store {_shown(value)}{why}; {_REMEDY}")


def check_values(place: str, kind: pa.DataType, values: Sequence[Any]) -> None:
    """Raise `Misfit` for values that Arrow would change or drop.

    Args:
        place: the location of the values, for error messages.
        values: the values of the column; None represents a missing value.
    """
    if types.is_dictionary(kind):
        check_values(place, kind.value_type, values)
        return
    _check_kinds(place, kind, values)
    if types.is_floating(kind) and kind.bit_width < 64:
        _check_narrow(place, kind, values)
    elif types.is_timestamp(kind) or types.is_date(kind):
        _check_times(place, kind, values)
    elif types.is_decimal(kind):
        _check_zeros(place, kind, values)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        check_values(f"{place}[]", kind.value_type, list(chain.from_iterable(filter(None, values))))
    elif types.is_struct(kind):
        there = list(filter(None, values))
        strangers = set().union(*there).difference([field.name for field in kind])
        if strangers:
            raise Misfit(f"column {place!r} has type {kind}, which has no field {min(map(str, strangers))!r}")
        for field in kind:
            check_values(f"{place}.{field.name}", field.type, list(map(dict.get, there, repeat(field.name))))
    elif types.is_map(kind):
        there = list(filter(None, values))
        check_values(f"{place}.key", kind.key_type, list(chain.from_iterable(there)))
        check_values(f"{place}[]", kind.item_type, list(chain.from_iterable(map(dict.values, there))))


def _check_kinds(place: str, kind: pa.DataType, values: Sequence[Any]) -> None:
    kept = next((python_types for is_of, python_types in _KEPT if is_of(kind)), None)
    if kept is None:
        views = {"string_view": frozenset({str}), "binary_view": frozenset({bytes, bytearray})}
        kept = views.get(str(kind), frozenset())
    wrong = set(map(type, values)).difference(kept, (type(None),))
    if wrong:
        value = next(value for value in values if type(value) in wrong)
        raise Misfit(f"column {place!r} has type {kind}, not {_name_of(type(value))} ({_shown(value)}); {_REMEDY}")


def _name_of(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _check_narrow(place: str, kind: pa.DataType, values: Sequence[Any]) -> None:
    try:
        whole, narrow = pa.array(values, pa.float64()), pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise _unkept(place, kind, _first_refused(kind, values)) from None
    wrong = _first_changed(whole, narrow)
    if wrong is not None:
        raise _unkept(place, kind, wrong)


def _check_zeros(place: str, kind: pa.DataType, values: Sequence[Any]) -> None:
    for value in values:
        if type(value) is Decimal and not value and value.is_signed():
            raise _unkept(place, kind, value, ", the sign of a zero")


def _check_times(place: str, kind: pa.DataType, values: Sequence[Any]) -> None:
    zoned = types.is_timestamp(kind) and kind.tz is not None
    coarse = _MICROSECONDS.get(kind.unit, 1) if types.is_timestamp(kind) else 0
    for value in values:
        if value is None:
            continue
        offset = value.utcoffset()
        if (offset is not None) != zoned:
            raise Misfit(
                f"column {place!r} has type {kind} {'with' if zoned else 'without'} a time zone, which cannot store "
                f"{value}; {_REMEDY}"
            )
        if offset is None:
            if value.fold:
                raise _unkept(place, kind, value, ", the second occurrence of its hour (fold=1)")
        elif offset.microseconds:
            raise _unkept(place, kind, value, ", an offset with fractions of a second")
        elif not 1 < value.year < 9999:
            try:
                value.astimezone(UTC)
            except OverflowError:
                raise _unkept(place, kind, value, ", which in UTC is outside the years 1 to 9999") from None
        if value.microsecond % coarse if coarse else (value.hour or value.minute or value.second or value.microsecond):
            raise _unkept(place, kind, value)


def check_cast(place: str, column: pa.Array, cast: pa.Array) -> None:
    """Raise `Misfit` if casting `column` to another type, which resulted in `cast`, has changed a value."""
    before, after = column.type, cast.type
    if types.is_floating(before) != types.is_floating(after) and types.is_decimal(before) != types.is_decimal(after):
        raise Misfit(f"column {place!r} has type {after}, not {before}")
    if (getattr(before, "tz", None) is None) != (getattr(after, "tz", None) is None):
        raise Misfit(f"column {place!r} has type {after}, not {before}: only one of them has a time zone")
    wrong = _first_changed(column, cast)
    if wrong is not None:
        raise _unkept(place, after, wrong)


def _first_changed(column: pa.Array, cast: pa.Array) -> Any:
    """Return the first value of `column` that differs from its counterpart in `cast`, or None if all are equal."""
    back = cast.cast(column.type, safe=False)
    same = pc.equal(column, back)
    if types.is_floating(column.type):
        same = pc.or_(same, pc.and_(pc.is_nan(column), pc.is_nan(back)))
    at = pc.index(same, False).as_py()
    return None if at < 0 else column[at].as_py()
