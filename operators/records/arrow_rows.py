"""Turns a range of rows of Arrow data into plain dicts, the same dicts whenever they are asked for.

Structs and maps become dicts, timestamps datetime (UTC where they are instants, naive otherwise), dates naive datetime
at midnight, decimals Decimal, binary bytes.  Spark does not check that a string column holds UTF-8: what is not
is replaced by U+FFFD, as `bytes.decode("utf-8", "replace")` does.

Nothing here imports pyarrow before it is given Arrow data.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError
from causal.records.vectors import Vectors

if TYPE_CHECKING:
    import pyarrow as pa

Convert = Callable[[Any], Any]
"""A function from pyarrow's value to the one that a record holds."""


def rows_of(table: pa.Table, start: int, count: int) -> list[dict[str, Any]]:
    """Returns rows `start` to `start + count` of the table."""
    piece = table.slice(start, count)
    columns = [_values(piece.column(index), piece.schema.field(index).type) for index in range(piece.num_columns)]
    names = piece.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)] if columns else []


def vectors_of(table: pa.Table, start: int, count: int) -> Vectors:
    """The same rows as vectors: strings that are not UTF-8 are repaired in the same way.

    Raises:
        NotCarried: a column whose type vectors cannot hold.
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
    return pa.array(_values(column, column.type), column.type) if text else column


def values_of(column: pa.Array) -> list[Any]:
    """The values of one column as rows hold them."""
    return _values(column, column.type)


def check_carried(schema: pa.Schema) -> None:
    """Raise `PipelineError` for a column whose type no record can hold, or a name that two columns share."""
    names: set[str] = set()
    for field in schema:
        if field.name in names:
            raise PipelineError(f"two columns are called {field.name!r}: rename one, rows become dicts")
        names.add(field.name)
        _converter(field.type, field.name)


def _values(column: pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    convert = _converter(kind, "")
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        values, convert = column.cast(_as_binary(kind)).to_pylist(), _converter(kind, "", decode=True)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType, place: str, decode: bool = False) -> Convert | None:
    """The function that makes values of this type plain; None if they are already.  `decode`: strings are bytes."""
    import pyarrow.types as types

    if types.is_string(kind) or types.is_large_string(kind):
        return _decode if decode else None
    if types.is_timestamp(kind):
        return _instant if kind.tz else None
    if types.is_date(kind):
        return _midnight
    if types.is_struct(kind):
        return _struct({field.name: _converter(field.type, f"{place}.{field.name}", decode) for field in kind})
    if types.is_list(kind) or types.is_large_list(kind):
        return _list(_converter(kind.value_type, f"{place}[]", decode))
    if types.is_map(kind):
        return _map(_converter(kind.key_type, f"{place} key", decode), _converter(kind.item_type, f"{place}[]", decode))
    numbers = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)
    if any(is_plain(kind) for is_plain in (*numbers, types.is_null, types.is_binary, types.is_large_binary)):
        return None
    raise PipelineError(f"column {place}: records cannot hold {kind}; cast it to a string or a number in read()")


def _decode(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _instant(value: datetime) -> datetime:
    return value.astimezone(UTC)


def _midnight(value: date) -> datetime:
    return datetime.combine(value, time())


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


def _map(convert_key: Convert | None, convert_item: Convert | None) -> Convert:
    def convert_map(value: list[tuple[Any, Any]]) -> dict[Any, Any]:
        return {
            convert_key(key) if convert_key else key: convert_item(item) if convert_item and item is not None else item
            for key, item in value
        }

    return convert_map


def _as_binary(kind: pa.DataType) -> pa.DataType:
    """The type with bytes for strings: a cast to it looks at no byte."""
    import pyarrow as pa

    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_binary(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_binary(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_as_binary(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_as_binary(kind.key_type), kind.item_field.with_type(_as_binary(kind.item_type)))
    return kind
