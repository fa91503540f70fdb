"""Elements in bulk: the encoding of records, and chunks, which are the unit in which elements are sent.

A *chunk* is the output of one event of a task on one channel: either records or one punctuation. It is encoded once, at
the end of the event (D10). After that, only its bytes are gathered, so a frame may contain any number of whole chunks,
and timing cannot change content (D2).

On the wire, a chunk consists of a kind (1 byte), a count (4), a length (4) and a body of that length:

    RECORDS    from 1  `00` and a MessagePack list; or `01` and a list of columns whose rows are tuples of one length;
                       or `02` and Arrow columns; or `03`, a list of keys and a list of their counts
    BARRIER    1       epoch, 8 bytes, with bit 62 set in the last barrier of a job
    END        1       empty; only barriers may follow on that channel
    WATERMARK  1       event time in ns, 8 bytes, signed
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from causal.errors import PeerViolation
from causal.records.rows import COUNTED, PLAIN, TUPLES, VECTORS, Batch, Counted, Rows, listed
from causal.records.values import NotCarried, decode, decode_dicts, encode_loosely
from causal.records.vectors import Vectors

# Chunk kinds. A tag is never reused; retired tags stay here with a note.
RECORDS = 1
BARRIER = 2
END = 3
WATERMARK = 4
ROWS = 5  # a sink's encoded rows; never sent
LISTED = 6  # the body is a list of records or Vectors that were never encoded (from a source's partition); never sent

IDLE_NS = -(1 << 63)
"""The time of an idle channel's watermark: the receiver does not wait for the channel until its next element."""

FINAL = 1 << 62
"""The bit in a barrier's epoch that marks the last barrier; a task that has performed it performs nothing more (`causal
savepoint --stop`)."""

_CHUNK = struct.Struct("<BII")
CHUNK_HEAD_BYTES = _CHUNK.size
_EIGHT = struct.Struct("<q")
_ON_THE_WIRE = frozenset((RECORDS, BARRIER, END, WATERMARK))

_PLAIN_TAG, _TUPLES_TAG, _VECTORS_TAG, _COUNTED_TAG = (tag[0] for tag in (PLAIN, TUPLES, VECTORS, COUNTED))
_BLOCK = 512
"""The number of tuples converted to columns at a time; with more, the first column's values would leave the cache."""
_COPIED_BYTES_MAX = 4096
"""The size up to which a copy is faster than a view."""

Records = list[Any] | Rows | Vectors


@dataclass(slots=True)
class Chunk:
    """`count` elements produced by one event; `body` is bytes, or a list or `Vectors` if the kind is LISTED."""

    kind: int
    count: int
    body: Any
    origin_ns: int = 0
    """The time at which its oldest record entered the job; used only for latencies, and never part of the content."""

    @property
    def size(self) -> int:
        return len(self.body)


def barrier(epoch: int, final: bool = False) -> Chunk:
    return Chunk(BARRIER, 1, _EIGHT.pack(epoch | FINAL if final else epoch))


def watermark(time_ns: int) -> Chunk:
    return Chunk(WATERMARK, 1, _EIGHT.pack(time_ns))


def end() -> Chunk:
    return Chunk(END, 1, b"")


def stamp_of(chunk: Chunk) -> int:
    """Return the epoch of a barrier or the time of a watermark."""
    stamp: int = _EIGHT.unpack(chunk.body)[0]
    return stamp & ~FINAL if chunk.kind == BARRIER else stamp


def is_final(chunk: Chunk) -> bool:
    """Return whether a barrier is the last one of the job."""
    return bool(_EIGHT.unpack(chunk.body)[0] & FINAL)


def encode_records(records: Sequence[Any] | Batch) -> bytes:
    """Encode records; equal records have equal bytes.

    Vectors, and tuples of equal length, which are the common case, are sent as columns.

    Raises:
        NotCarried: MessagePack cannot encode a record unchanged (but bytearray and memoryview are decoded as bytes).
    """
    if isinstance(records, Batch):
        return records.encode()
    if records and type(records[0]) is tuple and records[0] and list(map(type, records)).count(tuple) == len(records):
        try:
            columns = _columns(records) if len(records) > _BLOCK else list(map(list, zip(*records, strict=True)))
        except ValueError:  # the tuples have different lengths
            return _encode_plain(records)
        try:
            return TUPLES + encode_loosely(columns, 1)
        except NotCarried:  # in columns, a record is nested one level deeper, which may exceed the limit
            return _encode_plain(records)
    return PLAIN + encode_loosely(records if type(records) is list else list(records))


def _columns(records: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Return the columns of many tuples of one length.

    Raises:
        ValueError: the tuples have different lengths.
    """
    columns = list(map(list, zip(*records[:_BLOCK], strict=True)))
    for place in range(_BLOCK, len(records), _BLOCK):
        block = zip(*records[place : place + _BLOCK], strict=True)
        for column, items in zip(columns, block, strict=True):
            column.extend(items)
    return columns


def _encode_plain(records: Sequence[Any]) -> bytes:
    return PLAIN + encode_loosely(list(records))


def decode_records(body: bytes | memoryview) -> Any:
    """Return the records that `encode_records` encoded: a list, `Counted` or `Vectors`.

    Raises:
        PeerViolation: the bytes are not a body of records.
    """
    return listed(decode_rows(body))


def decode_rows(body: bytes | memoryview) -> Any:
    """Decode like `decode_records`, but return tuples of equal length as `Rows`.

    Raises:
        PeerViolation: the bytes are not a body of records.
    """
    size = len(body)
    tag = body[0] if size else None
    if tag == _VECTORS_TAG:
        return Vectors.decode(body)
    content = body[1:] if size <= _COPIED_BYTES_MAX else memoryview(body)[1:]
    value = decode_dicts(content) if tag == _PLAIN_TAG else decode(content)
    if type(value) is not list or tag not in (_PLAIN_TAG, _TUPLES_TAG, _COUNTED_TAG):
        raise PeerViolation("a body of records is not a list")
    if tag == _PLAIN_TAG:
        return value
    if set(map(type, value)) != {list} or len(set(map(len, value))) != 1 or not value[0]:
        raise PeerViolation("a body of columns is not a list of lists with the same length")
    if tag == _COUNTED_TAG:
        if len(value) != 2 or set(map(type, value[1])) != {int} or min(value[1]) < 1:
            raise PeerViolation("a body of counted records does not consist of keys and whole numbers from 1")
        return Counted(*value)
    return Rows(value)


def pack_chunks(chunks: Iterable[Chunk]) -> bytes:
    """Return the payload of a frame, in which each chunk follows a small header (kind, count, length)."""
    parts: list[bytes] = []
    for chunk in chunks:
        parts.append(_CHUNK.pack(chunk.kind, chunk.count, len(chunk.body)))
        parts.append(chunk.body)
    return b"".join(parts)


def unpack_chunks(payload: bytes | memoryview, origin_ns: int = 0) -> list[Chunk]:
    """Return the chunks of a payload, with their bodies as bytes.

    Raises:
        PeerViolation: the lengths do not add up, a count is 0, or a kind is unknown.
    """
    chunks: list[Chunk] = []
    place, end_of = 0, len(payload)
    while place < end_of:
        if end_of - place < CHUNK_HEAD_BYTES:
            raise PeerViolation("a payload ends inside a chunk's header")
        kind, count, length = _CHUNK.unpack_from(payload, place)
        place += CHUNK_HEAD_BYTES
        if kind not in _ON_THE_WIRE or count == 0 or length > end_of - place:
            raise PeerViolation(f"chunk of kind {kind}, count {count}, length {length} is invalid")
        if kind != RECORDS and (count != 1 or length != (0 if kind == END else 8)):
            raise PeerViolation(f"punctuation of kind {kind}, count {count}, length {length} is invalid")
        if kind == BARRIER and _EIGHT.unpack_from(payload, place)[0] < 0:
            raise PeerViolation("a barrier has a negative epoch")
        chunks.append(Chunk(kind, count, bytes(payload[place : place + length]), origin_ns))
        place += length
    return chunks
