"""The encoding of vectors as JSON lines, column by column, with the same bytes as the encoder of rows produces.

Arrow writes integers, booleans, and text that needs no escaping. Floats are encoded one by one. In all other columns,
the encoder of rows encodes each distinct value once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from causal.records.vectors import Vectors
from operators.records.arrow_rows import values_of

_TO_ESCAPE = r'["\\\x00-\x1f]'
Encode = Callable[[Any], str]


def json_lines(vectors: Vectors, encode: Encode) -> bytes:
    """Return one JSON document per row, each followed by a newline.

    Args:
        encode: returns the JSON of one value.
    """
    parts: list[Any] = []
    before = "{"
    for field, column in zip(vectors.batch.schema, vectors.batch.columns, strict=True):
        parts += [pa.scalar(f"{before}{encode(field.name)}: ", pa.large_string()), _written(column, encode)]
        before = ", "
    lines = pc.binary_join_element_wise(*parts, pa.scalar("}\n", pa.large_string()), pa.scalar("", pa.large_string()))
    _, offsets, text = lines.buffers()
    first, last = (memoryview(offsets).cast("q")[place] for place in (lines.offset, lines.offset + len(lines)))
    return bytes(memoryview(text)[first:last])


def _written(column: pa.Array, encode: Encode) -> pa.Array:
    """Return the values of a column as JSON text."""
    kind = column.type
    if types.is_integer(kind) or types.is_boolean(kind):
        return pc.fill_null(column.cast(pa.large_string()), "null")
    if types.is_string(kind) or types.is_large_string(kind):
        if not pc.any(pc.match_substring_regex(column, _TO_ESCAPE)).as_py():
            quote = pa.scalar('"', pa.large_string())
            text = column.cast(pa.large_string())
            return pc.fill_null(
                pc.binary_join_element_wise(quote, text, quote, pa.scalar("", pa.large_string())), "null"
            )
    if types.is_floating(kind):
        # Encode every value separately, because 0.0 and -0.0 would be the same distinct value.
        return pa.array([encode(value) for value in column.to_pylist()], pa.large_string())
    encoded = column.dictionary_encode(null_encoding="encode")
    distinct = pa.array([encode(value) for value in values_of(encoded.dictionary)], pa.large_string())
    return distinct.take(encoded.indices)
