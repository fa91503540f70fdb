"""The recording of one epoch of a task, for a rehearsal: its determinants and the elements that they deliver.

A recording exists only if a job verifies its operators (`causal run --verify-replay`); otherwise, nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from causal.errors import CorruptData, PeerViolation
from causal.records.batch import LISTED, RECORDS, Chunk, decode_records, encode_records, pack_chunks, unpack_chunks
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
        self._deliveries: list[tuple[int, bool, bytes]] = []
        self._bytes = 0

    def delivered(self, input: int, chunks: Sequence[Chunk]) -> None:
        """Record the elements in their current form, because user code may modify the objects that it receives."""
        if self.unfit:
            return
        try:
            listed = chunks[0].kind == LISTED
            packed = pack_chunks(_as_bytes(chunk) for chunk in chunks) if listed else pack_chunks(chunks)
        except NotCarried as problem:
            self._give_up(f"a record of the source cannot be recorded: {problem}")
            return
        self._bytes += len(packed)
        if self._bytes > RECORDING_BYTES_MAX:
            self._give_up(
                f"more than {RECORDING_BYTES_MAX} bytes were delivered since the last checkpoint; take "
                "checkpoints more often"
            )
            return
        self._deliveries.append((input, listed, packed))

    def _give_up(self, why: str) -> None:
        self.unfit, self._deliveries = why, []

    def parts(self, log: bytes) -> list[bytes]:
        """Return the completed epoch and its logged determinants, for `read_recording`, and start a new recording."""
        head = encode([self.unfit, [[input, listed] for input, listed, _ in self._deliveries]])
        parts = [head, log, *(packed for _, _, packed in self._deliveries)]
        self.unfit, self._deliveries, self._bytes = "", [], 0
        return parts


def _as_bytes(chunk: Chunk) -> Chunk:
    return Chunk(RECORDS, chunk.count, encode_records(chunk.body))


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
            Delivery(input, tuple(_listed(chunk) if listed else chunk for chunk in unpack_chunks(packed)))
            for (input, listed), packed in zip(heads, parts[2:], strict=True)
        ]
        return Recorded(str(unfit), parts[1], tuple(deliveries))
    except (PeerViolation, ValueError, TypeError, IndexError) as problem:
        raise CorruptData(f"the recording cannot be read: {problem}") from None


def _listed(chunk: Chunk) -> Chunk:
    return Chunk(LISTED, chunk.count, decode_records(chunk.body)) if chunk.kind == RECORDS else chunk
