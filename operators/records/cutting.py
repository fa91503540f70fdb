"""Cutting of an event's output for one channel into pieces that each fit into a chunk.

The cuts depend only on the records, so a replay cuts at the same places. An encoded piece is discarded before the next
piece is determined. Besides the records themselves, memory therefore holds at most one encoded copy of a large record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from causal.records.batch import encode_records
from causal.records.values import encode_loosely

CHUNK_BYTES_TARGET = 4 << 20
"""The size of chunks into which the output of an event for a channel is cut, so that a chunk always fits into a frame.
"""


def pieces(records: Any) -> Iterator[Any]:
    """Yield all records of a listed batch in order, in pieces that do not exceed the target size.

    A record that is larger than the target size forms a piece of its own.

    Raises:
        NotCarried: MessagePack cannot carry a record unchanged.
    """
    return _gathered(records) if isinstance(records, list) else _halved(records)


def _gathered(records: list[Any]) -> Iterator[list[Any]]:
    first, gathered_bytes = 0, 0
    for place, record in enumerate(records):
        size = len(encode_loosely(list(record) if type(record) is tuple else record))  # columns hold lists
        if gathered_bytes and gathered_bytes + size > CHUNK_BYTES_TARGET:
            yield records[first:place]
            first, gathered_bytes = place, 0
        gathered_bytes += size
    yield records[first:]


def _halved(records: Any) -> Iterator[Any]:
    waiting = [records]
    while waiting:
        piece = waiting.pop()
        middle = len(piece) // 2
        if middle and len(encode_records(piece)) > CHUNK_BYTES_TARGET:
            waiting += [piece[middle:], piece[:middle]]
        else:
            yield piece
