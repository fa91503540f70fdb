"""The conversion of pieces of an output to Arrow record batches with exactly the schema that Spark requests."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from causal.errors import PipelineError
from operators.outputs.output import Output, Piece
from operators.records.exact_types import Misfit, check_cast, exact_array
from operators.sinks.contract.sink import NOT_FINITE, encode_json
from operators.sinks.parquet.fitting import inferred

SAMPLED_ROWS = 1000
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.null(): pa.string(),
}
"""The types that Spark has, for those that it does not have."""

_FLOATS = {text: float(text) for text in NOT_FINITE.values()}
"""The numbers that JSON does not have, by the text that stands for them."""


def sampled(output: Output, path: str, uncovered: bool) -> pa.Schema:
    """Return the schema of the existing rows: that of the Parquet files, or one inferred from each task's first rows.

    Raises:
        PipelineError: there are no rows yet, or the rows are not JSON objects.
    """
    schema = getattr(output, "schema", None)
    if schema is None:
        records: list[Any] = []
        ends = output.ends(uncovered)
        for task in sorted(ends):
            for _, texts in output.rows(task, 0, min(ends[task], SAMPLED_ROWS)):
                records += map(json.loads, texts)
        if not records:
            raise PipelineError(f"{path} has no rows from which to infer a schema; add .schema('key string, …')")
        try:
            schema = inferred(records, None)
        except Misfit as problem:
            raise PipelineError(
                f"{path}: its records have no columns ({problem}); use option('records', 'json')"
            ) from None
    return pa.schema([(field.name, _of_spark(field.type)) for field in schema])


def _of_spark(kind: pa.DataType) -> pa.DataType:
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return _WIDER.get(kind, kind)


def json_of_piece(task: str, piece: Piece, schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch whose columns are the task, the position, and the record as JSON."""
    positions, rows = piece
    if isinstance(rows, pa.RecordBatch):
        texts = [encode_json(record) for record in rows.to_pylist()]
    else:
        texts = [text.rstrip(b"\n").decode() if isinstance(text, bytes) else text for text in rows]
    columns = [pa.repeat(task, len(texts)), pa.array(positions, pa.int64()), pa.array(texts, pa.string())]
    return pa.RecordBatch.from_arrays(_named(columns, schema), schema=schema)


def _named(columns: list[pa.Array], schema: pa.Schema) -> list[pa.Array]:
    if [(field.name, field.type) for field in schema] != [
        ("task", pa.string()), ("position", pa.int64()), ("record", pa.string())
    ]:  # fmt: skip
        raise PipelineError("option('records', 'json') has its own schema; leave out .schema(…)")
    return columns


def columns_of_piece(task: str, piece: Piece, schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch with the records' values in the columns of the schema.

    Values are assigned by name or, for records that are lists, by index.
    """
    positions, rows = piece
    own = [field for field in schema if field.name not in ("_task", "_position")]
    count = len(rows) if isinstance(rows, list) else rows.num_rows
    if isinstance(rows, pa.RecordBatch):
        names = rows.schema.names
        by_name = {f.name: rows.column(f.name) if f.name in names else pa.nulls(count, f.type) for f in own}
    else:
        values = _values([json.loads(text) for text in rows], own, task, positions[0])
        by_name = {field.name: _array(field, column, task, positions[0]) for field, column in zip(own, values)}
    by_name |= {"_task": pa.repeat(task, count), "_position": pa.array(positions, pa.int64())}
    columns = [_cast(by_name[field.name], field, task, positions[0]) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _values(records: list[Any], own: list[pa.Field], task: str, first: int) -> list[list[Any]]:
    kinds = frozenset(map(type, records))
    if kinds == {dict}:
        return [[record.get(field.name) for record in records] for field in own]
    if kinds == {list} and frozenset(map(len, records)) == {len(own)}:
        return list(map(list, zip(*records, strict=True)))
    raise PipelineError(
        f"rows of {task} from {first} on are not objects with these columns; use option('records', 'json')"
    )


def _array(field: pa.Field, values: list[Any], task: str, first: int) -> pa.Array:
    """Return a column; text that the sink wrote for bytes, times, decimals, NaN and infinities is converted back."""
    kind = field.type
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_decimal(kind):
        return _text(values)
    try:
        if types.is_binary(kind):
            values = [bytes.fromhex(value) if isinstance(value, str) else value for value in values]
        elif types.is_string(kind):
            values = [value if value is None or isinstance(value, str) else encode_json(value) for value in values]
        elif types.is_floating(kind):
            values = [_FLOATS.get(value, value) if isinstance(value, str) else value for value in values]
        return exact_array(field.name, kind, values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        raise _unfit(field, str(problem), task, first) from None


def _text(values: list[Any]) -> pa.Array:
    return pa.array([value if value is None or isinstance(value, str) else str(value) for value in values], pa.string())


def _cast(column: pa.Array, field: pa.Field, task: str, first: int) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        cast = column.cast(field.type)
        if not types.is_string(column.type) and not types.is_nested(column.type):
            check_cast(field.name, column, cast)
        return cast
    except (pa.ArrowException, ValueError) as problem:
        raise _unfit(field, str(problem), task, first) from None


def _unfit(field: pa.Field, problem: str, task: str, first: int) -> PipelineError:
    reason = " ".join(problem.split())[:300]
    return PipelineError(
        f"rows of {task} from {first} on do not fit column {field.name} ({field.type}): {reason}; use another schema"
    )
