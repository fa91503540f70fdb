"""Conversion of ranges of Arrow rows to plain dicts; the same rows always result in the same dicts.

Structs and maps become dicts. Timestamps of any unit become datetimes, which are in UTC if the timestamps are instants
and naive otherwise. Dates become naive datetimes at midnight. Decimals become Decimal, binary values become bytes, and
dictionary-encoded values are decoded. The following values are refused: a time with a fraction of a microsecond or a
year that datetime does not support, a map that cannot be a dict, and text that is not UTF-8. Spark does not check its
text, so text from Spark, and no other text, is repaired: invalid UTF-8 is replaced by U+FFFD, as `bytes.decode("utf-8",
"replace")` does.

Times are computed from their integers, because pyarrow's own conversion depends on whether pandas is installed and on
the time zones that the machine knows.

This module does not import pyarrow until Arrow data arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError
from causal.records.vectors import Vectors
from operators.records.seconds import NS_PER_S

if TYPE_CHECKING:
    import pyarrow as pa

Convert = Callable[[Any], Any]
"""A function that converts a value from pyarrow to the value in a record."""

Refuse = Callable[[str, str], Any]
"""A function of (value as text, reason why no record can contain it) that raises an error or returns a substitute."""

Decode = Callable[[str, Refuse], Convert]
"""A function that returns another function, which converts the bytes of a text to the value in a record."""

_EPOCH = datetime(1970, 1, 1)
_UNIT_NS = {"s": NS_PER_S, "ms": 1_000_000, "us": 1_000, "ns": 1}
_SPAN = "years 1 to 9999"


class Unheld(ValueError):
    """Raised for a value that no record can contain, although records support the column's type."""


def rows_of(table: pa.Table | pa.RecordBatch, start: int, count: int, repairs: bool = False) -> list[dict[str, Any]]:
    """Return rows `start` to `start + count` of the table.

    Args:
        repairs: whether to repair text that is not UTF-8 instead of refusing it.

    Raises:
        Unheld: a record cannot contain one of the values.
    """
    return _rows(table, start, count, _refuse, _repaired_text if repairs else _exact_text)


def shown_row(table: pa.Table | pa.RecordBatch, index: int) -> dict[str, Any]:
    """Return one row, in which a text replaces each value that no record can contain."""
    (row,) = _rows(table, index, 1, _show, _repaired_text)
    return row


def _rows(
    table: pa.Table | pa.RecordBatch, start: int, count: int, unheld: Refuse, decode: Decode
) -> list[dict[str, Any]]:
    piece = table.slice(start, count)
    names = piece.schema.names
    columns = [_values(piece.column(index), name, unheld, decode) for index, name in enumerate(names)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)] if columns else []


def vectors_of(table: pa.Table, start: int, count: int) -> Vectors:
    """Return rows `start` to `start + count` of the table as vectors; strings that are not UTF-8 are repaired.

    Raises:
        NotCarried: vectors cannot contain a column of one of the types.
    """
    import pyarrow as pa

    vectors = Vectors.of(table.slice(start, count))
    try:
        vectors.batch.validate(full=True)
    except pa.ArrowInvalid:
        batch = vectors.batch
        repaired = [_repaired(column) for column in batch.columns]
        vectors = Vectors(pa.RecordBatch.from_arrays(repaired, schema=batch.schema))
    return vectors


def _repaired(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return pa.array(_values(column, "", _refuse, _repaired_text), column.type) if text else column


def values_of(column: pa.Array) -> list[Any]:
    """Return the values of one column in the form that rows contain."""
    return _values(column, "", _refuse, _exact_text)


def check_carried(schema: pa.Schema) -> None:
    """Raise `PipelineError` if no record can contain the type of a column, or if two columns have the same name."""
    names: set[str] = set()
    for field in schema:
        if field.name in names:
            raise PipelineError(f"two columns are named {field.name!r}; rename one, because rows become dicts")
        names.add(field.name)
        _converter(field.type, field.name, _refuse)


def _values(column: pa.ChunkedArray | pa.Array, name: str, unheld: Refuse, decode: Decode) -> list[Any]:
    kind = column.type
    stored, convert = _stored(kind), _converter(kind, name, unheld)
    try:
        values: list[Any] = (column if stored == kind else column.cast(stored)).to_pylist()
    except UnicodeDecodeError:
        values = column.cast(_stored(kind, decode=True)).to_pylist()
        convert = _converter(kind, name, unheld, decode)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType, place: str, unheld: Refuse, decode: Decode | None = None) -> Convert | None:
    """Return a function that converts values of `_stored(kind, decode)` to plain values, or None if not needed.

    Args:
        decode: creates the function that decodes the bytes of a text; None if text is not stored as bytes.
    """
    import pyarrow.types as types

    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return None if decode is None else decode(place, unheld)
    if types.is_timestamp(kind):
        return _time(kind.unit, kind.tz is not None, place, unheld)
    if types.is_date(kind):
        return _midnight(1 if types.is_date32(kind) else 86_400_000, place, unheld)
    if types.is_dictionary(kind):
        return _converter(kind.value_type, place, unheld, decode)
    if types.is_struct(kind):
        if len({field.name for field in kind}) < len(list(kind)):
            raise PipelineError(
                f"column {place}: two of its fields have the same name; rename one, because structs become dicts"
            )
        return _struct({field.name: _converter(field.type, f"{place}.{field.name}", unheld, decode) for field in kind})
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _list(_converter(kind.value_type, f"{place}[]", unheld, decode))
    if types.is_map(kind) and not types.is_nested(kind.key_type):
        key = _converter(kind.key_type, f"{place} key", unheld, decode)
        return _map(key, _converter(kind.item_type, f"{place}[]", unheld, decode), place, unheld)
    if types.is_float16(kind):
        return float
    numbers = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    bytes_ = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    if any(is_plain(kind) for is_plain in (*numbers, *bytes_)):
        return None
    raise PipelineError(
        f"column {place}: records cannot contain {kind}; cast it to a string or a number in the program that "
        "writes it, or in read()"
    )


def _refuse(shown: str, why: str) -> Any:
    raise Unheld(f"{shown} is {why}")


def _show(shown: str, why: str) -> Any:
    return shown


def _repaired_text(place: str, unheld: Refuse) -> Convert:
    return lambda value: value.decode("utf-8", "replace")


def _exact_text(place: str, unheld: Refuse) -> Convert:
    def convert_text(value: bytes) -> Any:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return unheld(f"column {place}: {value!r:.100}", "not UTF-8")

    return convert_text


def _time(unit: str, instant: bool, place: str, unheld: Refuse) -> Convert:
    """Return a function that converts timestamps, which are counts of units since 1970."""
    unit_ns = _UNIT_NS[unit]
    epoch = _EPOCH.replace(tzinfo=UTC) if instant else _EPOCH

    def convert_time(value: int) -> Any:
        microseconds, rest = divmod(value * unit_ns, 1_000)
        if rest:
            return unheld(f"column {place}: {value} {unit} since 1970", "not a whole number of microseconds")
        try:
            return epoch + timedelta(microseconds=microseconds)
        except OverflowError:
            return unheld(f"column {place}: {value} {unit} since 1970", f"not a time in {_SPAN}")

    return convert_time


def _midnight(per_day: int, place: str, unheld: Refuse) -> Convert:
    """Return a function that converts dates, which are counts of days or milliseconds since 1970."""

    def convert_date(value: int) -> Any:
        days, rest = divmod(value, per_day)
        if rest:
            return unheld(f"column {place}: {value} ms since 1970", "no midnight")
        try:
            return _EPOCH + timedelta(days=days)
        except OverflowError:
            return unheld(f"column {place}: {days} days since 1970", f"not a day in {_SPAN}")

    return convert_date


def _struct(converters: dict[str, Convert | None]) -> Convert | None:
    needed = {name: convert for name, convert in converters.items() if convert}
    if not needed:
        return None

    def convert_struct(value: dict[str, Any]) -> dict[str, Any]:
        return {
            name: needed[name](item) if name in needed and item is not None else item for name, item in value.items()
        }

    return convert_struct


def _list(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: [None if item is None else convert(item) for item in value]


def _map(convert_key: Convert | None, convert_item: Convert | None, place: str, unheld: Refuse) -> Convert:
    def convert_map(value: list[tuple[Any, Any]]) -> Any:
        entries = {
            convert_key(key) if convert_key else key: convert_item(item) if convert_item and item is not None else item
            for key, item in value
        }
        if len(entries) < len(value) or any(key != key for key in entries):
            shown = f"{value!r:.100}"
            return unheld(f"column {place}: {shown}", "not a dict, because a key is repeated or NaN")
        return entries

    return convert_map


def _stored(kind: pa.DataType, decode: bool = False) -> pa.DataType:
    """Return the type to which values are cast before they are converted to Python objects.

    In this type, integers replace times, and the decoded values replace dictionary-encoded values.

    Args:
        decode: whether bytes also replace strings; the cast to bytes does not examine them.
    """
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_timestamp(kind):
        return pa.int64()
    if types.is_date(kind):
        return pa.int32() if types.is_date32(kind) else pa.int64()
    if types.is_dictionary(kind):
        return _stored(kind.value_type, decode)
    if decode and (types.is_string(kind) or types.is_string_view(kind)):
        return pa.binary()
    if decode and types.is_large_string(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_stored(field.type, decode)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_stored(kind.key_type, decode), kind.item_field.with_type(_stored(kind.item_type, decode)))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = kind.value_field.with_type(_stored(kind.value_type, decode))
        if types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.list_(item) if types.is_list(kind) else pa.large_list(item)
    return kind
