"""The conversion of records to Arrow columns of one fixed schema, and the search for records that do not fit it.

A row fits if no value has to be changed (`operators.records.exact_types`) and every key has a column. A missing value
becomes null. Columns of vectors are examined only if their types differ from those of the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, compress, repeat
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from causal.records.rows import Rows, listed
from causal.records.vectors import Vectors
from operators.records.exact_types import Misfit, check_cast, exact_array, reason_of

_NAMES_CHARACTERS_MAX = 300


def columns_of(records: Any, schema: pa.Schema) -> pa.RecordBatch:
    """Return the records as columns with exactly this schema.

    Raises:
        Misfit: a record does not fit; `misfits` identifies it.
    """
    if isinstance(records, Vectors):
        return _cast(records.batch, schema)
    parts = _parts(records, schema.names)
    columns = [_column(field, values) for field, values in zip(schema, parts, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def misfits(records: Any, schema: pa.Schema) -> list[tuple[int, str]]:
    """Return (index, reason) for each record that does not fit; if there are few, the search by halving is fast."""
    return _misfits(listed(records), lambda piece: columns_of(piece, schema), 0)


def _misfits(records: Any, attempt: Callable[[Any], object], offset: int) -> list[tuple[int, str]]:
    try:
        attempt(records)
        return []
    except Misfit as problem:
        if len(records) == 1:
            return [(offset, str(problem))]
    half = len(records) // 2
    return [*_misfits(records[:half], attempt, offset), *_misfits(records[half:], attempt, offset + half)]


def without(records: Any, left_out: Sequence[int]) -> Any:
    """Return the records except those at the given indices."""
    if not left_out:
        return records
    kept = bytearray(b"\1") * len(records)
    for index in left_out:
        kept[index] = 0
    if isinstance(records, Vectors):
        return Vectors(records.batch.filter(pa.array(map(bool, kept), pa.bool_())))
    return list(compress(listed(records), kept))


def inferred(records: Any, names: Sequence[str] | None) -> pa.Schema:
    """Return the schema of these records, with the columns in the order of their first occurrence.

    A column without any values becomes text; decimals receive the largest possible number of digits.

    Args:
        names: the column names, if records are tuples or lists.
    Raises:
        Misfit: the records contain nothing that can become columns.
    """
    if isinstance(records, Vectors):
        return typed(records.batch.schema)
    if names is None:
        records = [record for record in listed(records) if type(record) is dict] or [_no_columns(listed(records)[0])]
        names = list(dict.fromkeys(chain.from_iterable(records)))
        wrong = [name for name in names if type(name) is not str]
        if wrong or not names:
            raise Misfit(
                f"{wrong[0]!r} is not the name of a column" if wrong else "a record without keys has no columns"
            )
        parts: Sequence[list[Any]] = [list(map(dict.get, records, repeat(name))) for name in names]
    else:
        fitting = [record for record in listed(records) if type(record) is not dict and not _odd(record, names)]
        parts = _parts(fitting or listed(records), names)
    return pa.schema([(name, _kind(name, values)) for name, values in zip(names, parts, strict=True)])


def typed(schema: pa.Schema) -> pa.Schema:
    """Return the schema with text as the type of columns without any values."""
    return pa.schema([field.with_type(pa.string()) if types.is_null(field.type) else field for field in schema])


def _odd(record: Any, names: Sequence[str]) -> bool:
    return type(record) not in (tuple, list) or len(record) != len(names)


def _no_columns(record: Any) -> Any:
    raise Misfit(f"a {type(record).__name__} has no columns; use dicts, or name the parts of tuples with columns=[…]")


def _parts(records: Any, names: Sequence[str]) -> Sequence[list[Any]]:
    """Return the values of each column."""
    if isinstance(records, Rows):
        parts: Sequence[list[Any]] = records.columns
    else:
        kinds = set(map(type, records))
        if kinds == {dict}:
            strangers = set().union(*records).difference(names)
            if strangers:
                raise Misfit(f"column {min(map(str, strangers))!r} is not in the schema of the files ({_shown(names)})")
            return [list(map(dict.get, records, repeat(name))) for name in names]
        if not kinds <= {tuple, list}:
            _no_columns(next(record for record in records if type(record) not in (tuple, list)))
        widths = set(map(len, records))
        if len(widths) > 1:
            raise Misfit("the records have different lengths")
        parts = list(map(list, zip(*records, strict=True)))
    if len(parts) != len(names):
        raise Misfit(
            f"the number of values is {len(parts)}, but the number of columns is {len(names)} ({_shown(names)})"
        )
    return parts


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names)[:_NAMES_CHARACTERS_MAX]


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    return _complete(field, exact_array(field.name, field.type, values))


def _complete(field: pa.Field, column: pa.Array) -> pa.Array:
    if not field.nullable and column.null_count:
        raise Misfit(f"column {field.name!r} must have a value")
    return column


def _kind(name: str, values: list[Any]) -> pa.DataType:
    """Return the common type of the values or, if there is none, the type of the first value that is not None."""
    try:
        return _firm(pa.array(values).type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        first = next(value for value in values if value is not None)
    try:
        return _firm(pa.array([first]).type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        raise Misfit(f"column {name!r}: {reason_of(problem)}") from None


def _firm(kind: pa.DataType) -> pa.DataType:
    if types.is_null(kind):
        return pa.string()
    if types.is_decimal(kind):
        return pa.decimal128(38, max(kind.scale, 0))
    if types.is_list(kind):
        return pa.list_(_firm(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, _firm(field.type)) for field in kind])
    return kind


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema == schema:
        return batch
    strangers = [name for name in batch.schema.names if name not in schema.names]
    if strangers:
        raise Misfit(f"column {strangers[0]!r} is not in the schema of the files ({_shown(schema.names)})")
    columns = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        if place < 0:
            columns.append(_complete(field, pa.nulls(batch.num_rows, field.type)))
            continue
        column = batch.column(place)
        if types.is_null(column.type):
            columns.append(_complete(field, column.cast(field.type)))
            continue
        if _family(column.type) != _family(field.type):
            raise Misfit(f"column {field.name!r} has type {field.type}, not {column.type}")
        try:
            cast = column.cast(field.type)
        except (pa.ArrowException, ValueError) as problem:
            raise Misfit(f"column {field.name!r} has type {field.type}: {reason_of(problem)}") from None
        check_cast(field.name, column, cast)
        columns.append(_complete(field, cast))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _family(kind: pa.DataType) -> str:
    """Return the family of a type; a cast within a family may keep the values, because only the ranges differ."""
    families = {
        "number": (types.is_integer, types.is_floating, types.is_decimal),
        "text": (types.is_string, types.is_large_string),
        "bytes": (types.is_binary, types.is_large_binary),
        "time": (types.is_timestamp, types.is_date),
    }
    return next((name for name, kinds in families.items() if any(is_of(kind) for is_of in kinds)), str(kind))
