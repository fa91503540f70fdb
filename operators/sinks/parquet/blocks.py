"""The row encoding of sinks that keep records unchanged: one block per event, in the encoding used on connections.

Vectors therefore remain Arrow buffers, and blocks can be concatenated, as in a bundle.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from causal.errors import CorruptData, PeerViolation
from causal.records.batch import decode_rows, encode_records

_HEAD = struct.Struct("<II")  # the number of records, and the number of bytes in the body


def block(records: Any) -> bytes:
    """Return the block that contains these records, or empty bytes if there are no records.

    Raises:
        NotCarried: a value cannot be stored unchanged.
    """
    if not len(records):
        return b""
    body = encode_records(records)
    return _HEAD.pack(len(records), len(body)) + body


def records_in(rows: bytes) -> Iterator[Any]:
    """Yield the records of each block, as a list, `Rows` or `Vectors`.

    Raises:
        CorruptData: `rows` does not consist of such blocks.
    """
    view, place = memoryview(rows), 0
    while place < len(view):
        if len(view) - place < _HEAD.size:
            raise CorruptData("the rows end inside the header of a block")
        count, length = _HEAD.unpack_from(view, place)
        place += _HEAD.size
        try:
            records = decode_rows(bytes(view[place : place + length]))
        except PeerViolation as problem:
            raise CorruptData(f"the rows contain an invalid block ({problem})") from None
        if len(records) != count:
            raise CorruptData(f"a block of rows claims {count} records but contains {len(records)}")
        yield records
        place += length
