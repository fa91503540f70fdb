"""Times in old Parquet files (INT96), which pyarrow rounds down to the requested unit.

As microseconds, these times cover all years of `datetime` but lose a fraction; as nanoseconds, they keep the fraction
but wrap around outside the years 1677 to 2262. Together, the two values show whether a time is a whole number of
microseconds, because wrapping around does not change the remainder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


def has_old_times(file: pq.ParquetFile) -> bool:
    """Return whether any column contains INT96 values."""
    return any(file.schema.column(index).physical_type == "INT96" for index in range(len(file.schema)))


def lost_fraction(coarse: pa.Table | pa.RecordBatch, fine: pa.Table | pa.RecordBatch) -> str:
    """Return the name of a column with a time that differs between microseconds and nanoseconds, or ""."""
    import pyarrow.compute as pc

    for name, left, right in zip(coarse.schema.names, coarse.columns, fine.columns, strict=True):
        for microseconds, nanoseconds in zip(_times(left, right.type), _times(right, left.type), strict=True):
            if pc.any(pc.not_equal(pc.multiply(microseconds, 1000), nanoseconds)).as_py():
                return str(name)
    return ""


def _times(column: pa.Array | pa.ChunkedArray, other: pa.DataType) -> Iterator[pa.Array]:
    """Yield, as integers, those times of a column whose unit differs in the type `other`."""
    import pyarrow as pa
    import pyarrow.types as types

    if column.type == other:
        return
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if types.is_timestamp(column.type):
        yield column.cast(pa.int64())
    elif types.is_struct(column.type):
        for index, values in enumerate(column.flatten()):
            yield from _times(values, other.field(index).type)
    elif types.is_map(column.type):  # unlike other types, a map has no flatten()
        yield from _times(column.cast(_entries(column.type)), _entries(other))
    else:
        yield from _times(column.flatten(), other.value_type)


def _entries(kind: pa.MapType) -> pa.ListType:
    import pyarrow as pa

    return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
