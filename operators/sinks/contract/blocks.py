"""Encodes rows of a sink that keeps records as they are: one block per event, in the encoding of the wire.

So vectors stay the Arrow buffers that they were, and blocks can be put after one another as a bundle does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from causal.errors import CorruptData, PeerViolation
from causal.records.batch import decode_rows, encode_records

_HEAD = struct.Struct("<II")  # records, bytes of the body


def block(records: Any) -> bytes:
    """Return the block of these records; nothing of no records.

    Raises:
        NotCarried: a value that cannot be kept unchanged.
    """
    if not len(records):
        return b""
    body = encode_records(records)
    return _HEAD.pack(len(records), len(body)) + body


def records_in(rows: bytes) -> Iterator[Any]:
    """Yield the records of each block: a list, `Rows` or `Vectors`.

    Raises:
        CorruptData: these are no such blocks.
    """
    view, place = memoryview(rows), 0
    while place < len(view):
        if len(view) - place < _HEAD.size:
            raise CorruptData("rows end inside the head of a block")
        count, length = _HEAD.unpack_from(view, place)
        place += _HEAD.size
        try:
            records = decode_rows(bytes(view[place : place + length]))
        except PeerViolation as problem:
            raise CorruptData(f"rows hold a block that is none ({problem})") from None
        if len(records) != count:
            raise CorruptData(f"a block of rows claims {count} records and holds {len(records)}")
        yield records
        place += length
