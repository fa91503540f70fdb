"""Checks that an Arrow type keeps values unchanged: Arrow itself would take others as well, and silently change them.

A value is kept if what is read back equals it: an integer may be read back as a float or a decimal of the same value, a
tuple as a list, a time with a zone as the same instant in the column's zone, a midnight without a zone as its date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import chain, repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

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
"""The Python types whose values a column of a type may keep; a column of any other type keeps nothing but nulls."""
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}
"""The microseconds of one unit of a timestamp that is too coarse for them."""


class Misfit(ValueError):
    """A record that does not fit; the message says why, e.g. which column and type cannot keep which value."""


def check_values(place: str, kind: pa.DataType, values: Sequence[Any]) -> None:
    """Raise `Misfit` for what Arrow would change or drop.

    Args:
        place: of the values, as the message names it.
        values: of the column; None where there is none.
    """
    if types.is_dictionary(kind):
        check_values(place, kind.value_type, values)
        return
    _check_kinds(place, kind, values)
    if types.is_floating(kind) and kind.bit_width < 64:
        _check_narrow(place, kind, values)
    elif types.is_timestamp(kind) or types.is_date(kind):
        _check_times(place, kind, values)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        check_values(f"{place}[]", kind.value_type, list(chain.from_iterable(filter(None, values))))
    elif types.is_struct(kind):
        there = list(filter(None, values))
        strangers = set().union(*there).difference([field.name for field in kind])
        if strangers:
            raise Misfit(f"column {place!r} takes {kind}: {min(map(str, strangers))!r} is none of its fields")
        for field in kind:
            check_values(f"{place}.{field.name}", field.type, list(map(dict.get, there, repeat(field.name))))
    elif types.is_map(kind):
        there = list(filter(None, values))
        check_values(f"{place}.key", kind.key_type, list(chain.from_iterable(there)))
        check_values(f"{place}[]", kind.item_type, list(chain.from_iterable(map(dict.values, there))))


def _check_kinds(place: str, kind: pa.DataType, values: Iterable[Any]) -> None:
    kept = next((python_types for is_of, python_types in _KEPT if is_of(kind)), None)
    if kept is None:
        views = {"string_view": frozenset({str}), "binary_view": frozenset({bytes, bytearray})}
        kept = views.get(str(kind), frozenset())
    wrong = set(map(type, values)).difference(kept, (type(None),))
    if wrong:
        raise Misfit(f"column {place!r} takes {kind}, not {min(each.__name__ for each in wrong)}")


def _check_narrow(place: str, kind: pa.DataType, values: Sequence[Any]) -> None:
    whole = pa.array(values, pa.float64())
    wrong = _first_changed(whole, pa.array(values, kind))
    if wrong is not None:
        raise Misfit(f"column {place!r} takes {kind}, which cannot keep {wrong!r}")


def _check_times(place: str, kind: pa.DataType, values: Sequence[Any]) -> None:
    zoned = types.is_timestamp(kind) and kind.tz is not None
    coarse = _MICROSECONDS.get(kind.unit, 1) if types.is_timestamp(kind) else 0
    for value in values:
        if value is None:
            continue
        if (value.utcoffset() is not None) != zoned:
            raise Misfit(f"column {place!r} takes {kind}, which keeps {'a' if zoned else 'no'} zone, not {value}")
        if value.microsecond % coarse if coarse else (value.hour or value.minute or value.second or value.microsecond):
            raise Misfit(f"column {place!r} takes {kind}, which cannot keep {value}")


def check_cast(place: str, column: pa.Array, cast: pa.Array) -> None:
    """Raise `Misfit` if `cast`, which has the values of `column` as another type, differs from them."""
    before, after = column.type, cast.type
    if types.is_floating(before) != types.is_floating(after) and types.is_decimal(before) != types.is_decimal(after):
        raise Misfit(f"column {place!r} takes {after}, not {before}")
    if (getattr(before, "tz", None) is None) != (getattr(after, "tz", None) is None):
        raise Misfit(f"column {place!r} takes {after}, not {before}: one of them has a zone")
    wrong = _first_changed(column, cast)
    if wrong is not None:
        raise Misfit(f"column {place!r} takes {after}, which cannot keep {wrong}")


def _first_changed(column: pa.Array, cast: pa.Array) -> Any:
    """The first value of `column` that is another one in `cast`; None if there is none."""
    back = cast.cast(column.type, safe=False)
    same = pc.equal(column, back)
    if types.is_floating(column.type):
        same = pc.or_(same, pc.and_(pc.is_nan(column), pc.is_nan(back)))
    at = pc.index(same, False).as_py()
    return None if at < 0 else column[at].as_py()
