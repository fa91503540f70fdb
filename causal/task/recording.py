"""The recording of one epoch of a task, for a rehearsal: its determinants and the elements that they deliver.

A recording exists only if a job verifies its operators (`causal run --verify-replay`); otherwise, nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from causal.errors import CorruptData, PeerViolation
from causal.records.batch import LISTED, RECORDS, Chunk, decode_records, encode_records, pack_chunks, unpack_chunks
from causal.records.unreadable import Unreadable
from causal.records.values import NotCarried, decode, encode

RECORDING_BYTES_MAX = 256 << 20
"""The maximum size of a task's elements in one epoch; a larger epoch is neither recorded nor rehearsed."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The elements of one input that were delivered together."""

    input: int
    chunks: tuple[Chunk, ...]


class Recording:
    """The recording of the current epoch.

    Attributes:
        unfit: the reason why this epoch cannot be rehearsed; empty if it can be.
    """

    def __init__(self) -> None:
        self.unfit = ""
        self._deliveries: list[tuple[int, bool, Unread, bytes]] = []
        self._bytes = 0

    def delivered(self, input: int, chunks: Sequence[Chunk]) -> None:
        """Record the elements in their current form, because user code may modify the objects that it receives."""
        if self.unfit:
            return
        try:
            listed = chunks[0].kind == LISTED
            unread = _unread(chunks) if listed else []
            packed = pack_chunks(_as_bytes(chunk) for chunk in chunks) if listed else pack_chunks(chunks)
            self._bytes += len(packed) + len(encode(unread))
        except NotCarried as problem:
            self._give_up(f"a record of the source cannot be recorded: {problem}")
            return
        if self._bytes > RECORDING_BYTES_MAX:
            self._give_up(
                f"more than {RECORDING_BYTES_MAX} bytes were delivered since the last checkpoint; take "
                "checkpoints more often"
            )
            return
        self._deliveries.append((input, listed, unread, packed))

    def _give_up(self, why: str) -> None:
        self.unfit, self._deliveries = why, []

    def parts(self, log: bytes) -> list[bytes]:
        """Return the completed epoch and its logged determinants, for `read_recording`, and start a new recording."""
        head = encode([self.unfit, [[input, listed, unread] for input, listed, unread, _ in self._deliveries]])
        parts = [head, log, *(packed for *_, packed in self._deliveries)]
        self.unfit, self._deliveries, self._bytes = "", [], 0
        return parts


Unread = list[tuple[int, int, str, str, Any, str]]
"""The `Unreadable` elements of a delivery: chunk, index in the chunk, and the fields of the element."""


def _unread(chunks: Sequence[Chunk]) -> Unread:
    return [
        (at, index, each.where, each.why, each.raw, each.option)
        for at, chunk in enumerate(chunks)
        if type(chunk.body) is list and Unreadable in map(type, chunk.body)
        for index, each in enumerate(chunk.body)
        if type(each) is Unreadable
    ]


def _as_bytes(chunk: Chunk) -> Chunk:
    body = chunk.body
    if type(body) is list and Unreadable in map(type, body):
        body = [None if type(each) is Unreadable else each for each in body]
    return Chunk(RECORDS, chunk.count, encode_records(body))


@dataclass(frozen=True, slots=True)
class Recorded:
    """A completely recorded epoch of one task."""

    unfit: str
    log: bytes
    deliveries: tuple[Delivery, ...]


def read_recording(parts: Sequence[bytes]) -> Recorded:
    """Read the epoch recorded in these parts.

    Raises:
        CorruptData: `Recording.parts` did not produce these parts.
    """
    try:
        fields: Any = decode(parts[0])
        unfit, heads = fields
        deliveries = [
            Delivery(input, _listed(unpack_chunks(packed), unread) if listed else tuple(unpack_chunks(packed)))
            for (input, listed, unread), packed in zip(heads, parts[2:], strict=True)
        ]
        return Recorded(str(unfit), parts[1], tuple(deliveries))
    except (PeerViolation, ValueError, TypeError, IndexError) as problem:
        raise CorruptData(f"the recording cannot be read: {problem}") from None


def _listed(chunks: Iterable[Chunk], unread: Unread) -> tuple[Chunk, ...]:
    result = tuple(
        Chunk(LISTED, chunk.count, decode_records(chunk.body)) if chunk.kind == RECORDS else chunk for chunk in chunks
    )
    for at, index, where, why, raw, option in unread:
        result[at].body[index] = Unreadable(where, why, raw, option)
    return result
