"""Encoded records in an ingest log: segments that are one MessagePack list each, published with a note."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from causal.errors import CorruptData, PeerViolation
from causal.records.values import decode_dicts
from operators.ingest.contract import RESTORE, ReadableLog, Segment
from operators.ingest.log_writer import LogWriter
from operators.ingest.reader import IngestReader
from operators.source import SourceContext

SEGMENT_BYTES = 1 << 20
_LIST = struct.Struct(">BI")
_LIST_MARK = 0xDD
"""The mark of a MessagePack list whose length takes four bytes."""


def _nothing() -> None:
    pass


class EntryWriter(LogWriter):
    """The only process that writes to a log of encoded records."""

    def stage_entries(self, entries: Iterable[bytes]) -> int:
        """Write encoded records to the disk, and return how many; `publish_staged` makes them the job's."""
        part: list[bytes] = []
        size = count = 0
        for entry in entries:
            if part and size + len(entry) > SEGMENT_BYTES:
                self._stage_list(part)
                part, size = [], 0
            part.append(entry)
            size += len(entry)
            count += 1
        if part:
            self._stage_list(part)
        return count

    def publish(self, entries: Iterable[bytes], note: str, meanwhile: Callable[[], None] = _nothing) -> None:
        """Publish encoded records, which are on disk when this method returns; see `publish_staged`."""
        self.stage_entries(entries)
        self.publish_staged(note, meanwhile)

    def _stage_list(self, entries: list[bytes]) -> None:
        self.stage(_LIST.pack(_LIST_MARK, len(entries)) + b"".join(entries), len(entries))


class EntryReader(IngestReader):
    """A reader of the log's records; a subclass turns entries into records."""

    def __init__(self, log: ReadableLog, context: SourceContext) -> None:
        super().__init__(log, 0, context.name, checkpoints=context.checkpoints)
        self._rows_of = _slice

    def _decode(self, segment: Segment, data: bytes) -> Any:
        first = self._starts[next(at for at, (piece, _) in enumerate(self._pieces) if piece is segment)]
        stored = entries_of(data, segment, self._log)
        return [self._record(entry, position) for position, entry in enumerate(stored, first)]

    def _record(self, stored: Any, position: int) -> Any:
        raise NotImplementedError


def entries_of(data: bytes, segment: Segment, log: ReadableLog) -> list[Any]:
    """Return the entries of a segment.

    Raises:
        CorruptData: it is not the list that the manifest describes.
    """
    try:
        entries = decode_dicts(data)
    except PeerViolation as problem:
        raise CorruptData(f"{log.label(segment)} is not a list of records: {problem}") from None
    if type(entries) is not list or len(entries) != segment.rows:
        raise CorruptData(
            f"{log.label(segment)} does not contain {segment.rows} records, as its manifest says; {RESTORE}"
        )
    return entries


def _slice(records: list[Any], start: int, count: int) -> list[Any]:
    return records[start : start + count]
