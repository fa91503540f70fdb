"""Messages in the ingest log: their payloads as they came, decoded when a task reads them.

A message belongs to the job once its batch is published: it is then on disk exactly once, at a permanent position. The
note of a batch has the id of the last event, with which a connection is resumed, and how many connections could not be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from causal.errors import CorruptData
from causal.records.unreadable import Unreadable
from causal.records.values import encode
from operators.ingest.bound import BOUNDS, LogBounds
from operators.ingest.contract import ReadableLog
from operators.ingest.entry_log import EntryReader, EntryWriter, entries_of
from operators.ingest.ingest_log import IngestLog
from operators.source import SourceContext
from operators.sources.payloads import Decode, decoded, unreadable


class Message(NamedTuple):
    """A message as it came.

    Attributes:
        id: what the server calls the last event up to this one; empty if it has not said.
        event: the type of the event.
        why: why the message is not a record, if it was not kept completely.
    """

    payload: bytes
    received_at_s: float
    id: str = ""
    event: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """The note of a batch, which becomes durable together with it.

    Attributes:
        gaps: the number of connections that began without a means to resume after the last message.
        id: the id of the last event that is in the log.
    """

    gaps: int = 0
    id: str = ""

    @classmethod
    def of(cls, text: str) -> Note:
        """Return the note that was published as `text`; the first one if there is none.

        Raises:
            CorruptData: it is not a note.
        """
        try:
            return cls(**json.loads(text)) if text else cls()
        except (ValueError, TypeError) as problem:
            raise CorruptData(f"{text!r:.100} is no note of a source of messages ({problem})") from None

    def text(self) -> str:
        """Return the note as it is published."""
        return json.dumps({"gaps": self.gaps, "id": self.id})


class MessageWriter(EntryWriter):
    """The only process that writes to a log of messages."""

    def __init__(self, log: IngestLog, bounds: LogBounds = BOUNDS) -> None:
        super().__init__(log, "messages", bounds)

    def publish_messages(self, messages: Sequence[Message], note: Note) -> None:
        """Publish messages, which are on disk when this method returns; wait while too many bytes are unread."""
        self.publish(map(encode, map(list, messages)), note.text())

    def stored(self) -> Iterator[Message]:
        """Yield the messages that the log still has, the last one first."""
        for batch in reversed(self._log.batches()):
            manifest = self._log.manifest(batch)
            for segment in reversed(manifest.segments if manifest is not None else ()):
                if segment.rows:
                    stored = entries_of(self._log.supply([segment]), segment, self._log)
                    yield from (Message(*each) for each in reversed(stored))


class MessageReader(EntryReader):
    """A reader of the log's messages as records.

    Args:
        fields: the fields of a message that records have next to the value; records are the values if it is None.
    """

    def __init__(
        self, log: ReadableLog, context: SourceContext, where: str, decode: Decode, fields: Sequence[str] | None
    ) -> None:
        super().__init__(log, context)
        self._where = where
        self._decode_payload = decode
        self._fields = fields

    def counters(self) -> dict[str, int | float]:
        """Return those of every log, and the number of gaps."""
        return super().counters() | {"input_gaps": Note.of(self.note).gaps}

    def _record(self, stored: Any, position: int) -> Any:
        message, where = Message(*stored), f"{self._where} message {position + 1}"
        if message.why:
            return unreadable(where, message.why, message.payload)
        value = decoded(self._decode_payload, message.payload, where)
        if self._fields is None or type(value) is Unreadable:
            return value
        return {"value": value} | {name: getattr(message, _ATTRIBUTES.get(name, name)) for name in self._fields}


_ATTRIBUTES = {"received_at": "received_at_s"}
