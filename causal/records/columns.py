"""The encoding of record batches: Arrow's own buffers after a small header, determined by the values alone.

    02 00 00 00 | rows, 4 | length of the schema, 4 | schema | per column: nulls 1, bytes of text 4 | columns

The schema is a MessagePack list of [name, type]. A column consists of up to three buffers: validity bits if the column
has nulls, offsets if it contains text, and values. Each buffer has exactly the required length and is padded with zeros
to a multiple of 8 bytes. The values of nulls and all spare bits are zero, and offsets begin at 0. Arrow's IPC format is
not suitable; `docs/design/0007-vectors.md` explains why.

A column without any values may have the type null, because its type may be unknown. It fits every type: batches
that are joined have the type of the batch that has one.

This module needs pyarrow and NumPy; `causal.records.vectors` imports it only when there are vectors.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from causal.errors import PeerViolation
from causal.records.values import NotCarried
from causal.records.values import decode as decode_value
from causal.records.values import encode as encode_value

TAG = 2
COLUMNS_MAX = 1024
SCHEMAS_KNOWN_MAX = 64
_NAME_CHARACTERS_MAX = 1 << 10
_UNITS = ("s", "ms", "us", "ns")

_HEAD = struct.Struct("<B3xII")
_PLAIN: dict[str, tuple[Any, int, int]] = {
    "bool": (pa.bool_(), 0, 0),
    "null": (pa.null(), 0, 0),
    **{str(kind): (kind, kind.bit_width // 8, 0) for kind in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float32(), pa.float64(), pa.date32(),
    )},
    "string": (pa.string(), 0, 4),
    "binary": (pa.binary(), 0, 4),
    "large_string": (pa.large_string(), 0, 8),
    "large_binary": (pa.large_binary(), 0, 8),
}  # fmt: skip
"""The plain types: type name → (type, bytes per value, bytes per offset); a bool and a null have neither size."""


@dataclass(frozen=True, slots=True)
class Column:
    """The layout of one column: `width` bytes per value, or `offset` bytes per text offset; neither for bits.

    A column of nulls consists of bits as well, all zero, so that its length has the bound of every body.
    """

    width: int
    offset: int


def _entry_of(name: str, kind: pa.DataType) -> Any:
    """Return the entry for a type in a schema.

    Raises:
        NotCarried: vectors cannot contain the type.
    """
    text = str(kind)
    if text in _PLAIN:
        return text
    if types.is_timestamp(kind):
        return ["timestamp", kind.unit, kind.tz or ""]
    if types.is_decimal128(kind):
        return ["decimal128", kind.precision, kind.scale]
    raise NotCarried(
        f"column {name!r}: vectors cannot hold {text}; cast it to a string, a number, a timestamp or decimal128, "
        "or leave it out"
    )


def _type_of(entry: Any) -> tuple[pa.DataType, Column]:
    if type(entry) is str and entry in _PLAIN:
        kind, width, offset = _PLAIN[entry]
        return kind, Column(width, offset)
    match entry:
        case ["timestamp", str(unit), str(zone)] if unit in _UNITS and len(zone) <= _NAME_CHARACTERS_MAX:
            return pa.timestamp(unit, zone or None), Column(8, 0)
        case ["decimal128", precision, scale] if (
            type(precision) is type(scale) is int and 1 <= precision <= 38 and -38 <= scale <= 38
        ):
            return pa.decimal128(precision, scale), Column(16, 0)
    raise PeerViolation("a batch of vectors has a column of an unknown type")


@lru_cache(SCHEMAS_KNOWN_MAX)
def _encoded_schema(schema: pa.Schema) -> tuple[bytes, tuple[Column, ...]]:
    """Return the encoded schema and the layouts of its columns."""
    entries = [[field.name, _entry_of(field.name, field.type)] for field in schema]
    return encode_value(entries), tuple(_type_of(kind)[1] for _, kind in entries)


@lru_cache(SCHEMAS_KNOWN_MAX)
def _decoded_schema(written: bytes) -> tuple[pa.Schema, tuple[Column, ...], struct.Struct]:
    """Return a schema encoded by `_encoded_schema`, its column layouts, and the layout of the numbers that follow it.

    Raises:
        PeerViolation: the bytes are not a schema.
    """
    entries = decode_value(written)
    if type(entries) is not list or not 1 <= len(entries) <= COLUMNS_MAX:
        raise PeerViolation("a batch of vectors has no schema")
    names: dict[str, None] = {}
    fields, columns = [], []
    for entry in entries:
        if type(entry) is not list or len(entry) != 2 or type(entry[0]) is not str or entry[0] in names:
            raise PeerViolation("the schema of a batch of vectors has a malformed column")
        names[entry[0]] = None
        kind, column = _type_of(entry[1])
        try:
            fields.append(pa.field(entry[0], kind))
        except (ValueError, UnicodeError) as problem:
            raise PeerViolation(f"a batch of vectors has an invalid column: {problem}") from None
        columns.append(column)
    return pa.schema(fields), tuple(columns), struct.Struct("<" + "BI" * len(columns))


@lru_cache(SCHEMAS_KNOWN_MAX)
def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema without metadata and with every column nullable.

    Raises:
        NotCarried: vectors cannot have this schema.
    """
    names = schema.names
    if not 1 <= len(names) <= COLUMNS_MAX:
        raise NotCarried(f"vectors have 1 to {COLUMNS_MAX} columns, not {len(names)}")
    for name in names:
        if names.count(name) > 1:
            raise NotCarried(f"two columns are called {name!r}; rename one")
        if len(name) > _NAME_CHARACTERS_MAX:
            raise NotCarried(f"column {name[:40]!r}… has a name of {len(name)} characters; rename it")
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    _encoded_schema(plain)
    return plain


def carried(rows: Any) -> pa.RecordBatch:
    """Return a record batch, table or dict of columns as one record batch that can be encoded.

    Raises:
        NotCarried: the rows cannot be encoded; the message names the column and the remedy.
    """
    if isinstance(rows, dict):
        try:
            rows = pa.RecordBatch.from_pydict(rows)
        except (pa.ArrowException, TypeError, ValueError) as problem:
            raise NotCarried(f"a dict cannot be converted to columns: {' '.join(str(problem).split())}") from None
    if isinstance(rows, pa.Table):
        schema = _plain(rows.schema)
        rows = _one(rows)
    elif isinstance(rows, pa.RecordBatch):
        schema = _plain(rows.schema)
    else:
        raise NotCarried(
            f"a {type(rows).__name__} is not a batch; use a pyarrow RecordBatch, a Table or a dict of columns"
        )
    return pa.RecordBatch.from_arrays(rows.columns, schema=schema)


def _one(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_whole(column) for column in table.columns], schema=table.schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches, in order.

    Raises:
        NotCarried: two batches have different columns.
    """
    schema = batches[0].schema
    for batch in batches:
        schema = common_schema(schema, batch.schema)
    return _one(pa.Table.from_batches([batch if batch.schema == schema else batch.cast(schema) for batch in batches]))


def common_schema(known: pa.Schema, coming: pa.Schema) -> pa.Schema:
    """Return the schema of earlier batches and one more; a column without a type has that of the other schema.

    Raises:
        NotCarried: the columns differ.
    """
    if known == coming:
        return known
    fields = [
        after if types.is_null(before.type) else before
        for before, after in zip(known, coming)
        if before.name == after.name and (before.type == after.type or _NULL & {before.type, after.type})
    ]
    if not len(fields) == len(known) == len(coming):
        raise NotCarried(
            f"the columns of a batch ({_shown(coming)}) differ from those of earlier batches of its stream "
            f"({_shown(known)}); give all batches the same columns"
        )
    return pa.schema(fields)


_NULL = frozenset({pa.null()})


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


# Encoding.


def encode(batch: pa.RecordBatch) -> bytes:
    """Encode the rows of a batch as the body of a chunk."""
    schema, columns = _encoded_schema(batch.schema)
    shape: list[int] = []
    parts: list[Any] = [b""]
    for column, layout in zip(batch.columns, columns, strict=True):
        nulls = column.null_count > 0 and not types.is_null(column.type)
        if nulls:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            _put(parts, _bits(valid))
        text = 0
        if layout.offset:
            text = _put_text(parts, column.fill_null(pa.scalar(b"", column.type)) if nulls else column, layout.offset)
        elif layout.width:
            _put(parts, _values(column, layout.width, ~valid if nulls else None))
        elif types.is_null(column.type):
            _put(parts, bytes((len(column) + 7) // 8))
        else:
            _put(parts, _bits((column.fill_null(False) if nulls else column).to_numpy(zero_copy_only=False)))
        shape += (nulls, text)
    head = _HEAD.pack(TAG, batch.num_rows, len(schema)) + schema + struct.pack("<" + "BI" * len(columns), *shape)
    parts[0] = head + bytes(-len(head) % 8)
    return b"".join(parts)


def _put(parts: list[Any], buffer: Any) -> None:
    parts.append(buffer)
    spare = -len(buffer) % 8
    if spare:
        parts.append(bytes(spare))


def _bits(flags: Any) -> bytes:
    packed: bytes = np.packbits(flags, bitorder="little").tobytes()
    return packed


def _values(column: pa.Array, width: int, empty: Any) -> Any:
    """Return the values of a column, with zeros for nulls and without the rest of the buffer."""
    buffer, size = column.buffers()[1], len(column) * width
    if buffer is None:
        return bytes(size)
    exact = memoryview(buffer)[column.offset * width :][:size]
    if empty is None:
        return exact
    cells = np.frombuffer(exact, np.uint8).reshape(len(column), width).copy()
    cells[empty] = 0
    return cells.tobytes()


def _put_text(parts: list[Any], column: pa.Array, width: int) -> int:
    """Append the offsets, starting at 0, and the text to which they refer; return the length of the text."""
    _, places, text = column.buffers()
    if not len(column) or places is None:
        _put(parts, bytes(width * (len(column) + 1)))
        return 0
    offsets = np.frombuffer(places, f"<i{width}")[column.offset : column.offset + len(column) + 1]
    start, end = int(offsets[0]), int(offsets[-1])
    _put(parts, (offsets - start).tobytes() if start else memoryview(offsets).cast("B"))
    if end > start:
        _put(parts, memoryview(text)[start:end])
    return end - start


# Decoding.


def decode(body: bytes | memoryview) -> pa.RecordBatch:
    """Return the rows of a body; the columns are views of the body, so nothing is copied.

    Raises:
        PeerViolation: the bytes are not the encoding of a record batch.
    """
    data = body if type(body) is bytes else bytes(body)
    if len(data) < _HEAD.size:
        raise PeerViolation("a batch of vectors ends inside its header")
    tag, rows, length = _HEAD.unpack_from(data)
    place = _HEAD.size + length
    if tag != TAG or place > len(data):
        raise PeerViolation("a batch of vectors has no schema")
    schema, columns, shape = _decoded_schema(data[_HEAD.size : place])
    if place + shape.size > len(data):
        raise PeerViolation("a batch of vectors ends inside its header")
    numbers = shape.unpack_from(data, place)
    place += shape.size
    place += -place % 8
    sizes = [_sizes(column, rows, numbers[2 * at], numbers[2 * at + 1]) for at, column in enumerate(columns)]
    claimed = place + sum(size + -size % 8 for each in sizes for size in each if size is not None)
    if claimed != len(data):
        raise PeerViolation(f"the header of a batch of vectors claims {claimed} bytes, but the batch has {len(data)}")
    whole = pa.py_buffer(data)
    arrays = []
    for field, each in zip(schema, sizes, strict=True):
        buffers = []
        for size in each:
            buffers.append(None if size is None else whole.slice(place, size))
            place += 0 if size is None else size + -size % 8
        arrays.append((field.type, [None] if types.is_null(field.type) else buffers))
    try:
        batch = pa.RecordBatch.from_arrays([pa.Array.from_buffers(kind, rows, b) for kind, b in arrays], schema=schema)
        batch.validate(full=True)
    except (pa.ArrowException, ValueError) as problem:
        raise PeerViolation(f"a batch of vectors is damaged: {' '.join(str(problem).split())}") from None
    return batch


def _sizes(column: Column, rows: int, nulls: int, text: int) -> list[int | None]:
    """Return the length of each buffer of a column, or None for an absent buffer."""
    if nulls > 1 or (text and not column.offset):
        raise PeerViolation("a batch of vectors has a column of an unknown shape")
    bits = (rows + 7) // 8
    valid = bits if nulls else None
    if column.offset:
        return [valid, column.offset * (rows + 1), text]
    return [valid, column.width * rows if column.width else bits]
