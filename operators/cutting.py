"""What one event made for a channel, cut into pieces of which each fits a chunk.

Where it is cut follows from the records alone, so a replay cuts at the same places.  No piece is kept as bytes while
others are looked for: beside the records themselves, one giant record is there once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from causal.values import encode_loosely
from causal.vectors import Vectors

CHUNK_BYTES_TARGET = 4 << 20
"""What an event has made for one channel is cut into chunks of up to this, so that a frame always has room."""


def pieces(records: list[Any] | Vectors) -> Iterator[list[Any] | Vectors]:
    """In order, all of the records in pieces of up to the target, or of one record that is larger by itself.

    Raises:
        NotCarried: a record MessagePack cannot carry unchanged.
    """
    return _halved(records) if isinstance(records, Vectors) else _gathered(records)


def _gathered(records: list[Any]) -> Iterator[list[Any]]:
    first, gathered_bytes = 0, 0
    for place, record in enumerate(records):
        size = len(encode_loosely(list(record) if type(record) is tuple else record))  # as columns have it, if they do
        if gathered_bytes and gathered_bytes + size > CHUNK_BYTES_TARGET:
            yield records[first:place]
            first, gathered_bytes = place, 0
        gathered_bytes += size
    yield records[first:]


def _halved(records: Vectors) -> Iterator[Vectors]:
    waiting = [records]
    while waiting:
        piece = waiting.pop()
        middle = len(piece) // 2
        if middle and len(piece.encode()) > CHUNK_BYTES_TARGET:
            waiting += [piece[middle:], piece[:middle]]
        else:
            yield piece
