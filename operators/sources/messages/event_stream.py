"""The format of server-sent events (`text/event-stream`): bytes in, events out, as the HTML standard defines them.

data: {"n": 1}        lines of one event are joined by line feeds
id: 17                the id of this event, and of those after it that have none
event: price          its type; "message" by default
retry: 3000           the pause in ms before the next connection
: comment             and any other field: passed over
                      an empty line ends the event; an event without data is none
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DIGITS = re.compile(rb"[0-9]{1,9}")
ID_BYTES_MAX = 4096
"""A longer id is passed over, because it cannot be sent back in a header."""
TYPE_BYTES_MAX = 256
"""A longer type of an event is cut."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event; `bytes_left_out` is above 0 if it was larger than the bound, and then `data` is its beginning."""

    data: bytes
    id: str
    type: str
    bytes_left_out: int = 0


class EventParser:
    """A parser of one connection's bytes. It keeps one event, up to its maximum size.

    Args:
        last_id: the id of the last event before this connection.
    Attributes:
        retry_ms: the pause that the server asks for; None if it has not.
    """

    def __init__(self, last_id: str, event_bytes_max: int) -> None:
        self._event_bytes_max = event_bytes_max
        self._id = last_id
        self._rest = b""
        self._line_left_out = 0
        self._returned = False
        """Whether the last byte was a carriage return, to which a line feed may belong."""
        self._begins = True
        self._reset()
        self.retry_ms: int | None = None

    def add(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete."""
        returned, self._returned = self._returned, data.endswith(b"\r")
        data = self._rest + (data[1:] if returned and data.startswith(b"\n") else data)
        if self._begins:
            if len(data) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(data):
                self._rest = data
                return []
            data, self._begins = data.removeprefix(_BYTE_ORDER_MARK), False
        ready: list[Event] = []
        at = 0
        for end in _LINE_END.finditer(data):
            self._take(data[at : end.start()], ready)
            at = end.end()
        room = max(self._event_bytes_max, ID_BYTES_MAX) + len(b"data: ")
        self._rest = data[at : at + room]
        self._line_left_out += max(0, len(data) - at - room)
        return ready

    def _take(self, line: bytes, ready: list[Event]) -> None:
        left_out, self._line_left_out = self._line_left_out, 0
        if not line:
            if self._lines:
                ready.append(self._event())
            return self._reset()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            room = self._event_bytes_max - self._size
            kept = value[: max(0, room)]
            self._left_out += left_out + len(value) - len(kept) + (room < 0)
            if room >= 0:
                self._lines.append(kept)
                self._size += len(kept) + 1
        elif name == b"event":
            self._type = value[:TYPE_BYTES_MAX].decode(errors="replace")
        elif name == b"id" and b"\0" not in value and len(value) <= ID_BYTES_MAX and not left_out:
            self._id = value.decode(errors="replace")
        elif name == b"retry" and _DIGITS.fullmatch(value):
            self.retry_ms = int(value)

    def _event(self) -> Event:
        return Event(b"\n".join(self._lines), self._id, self._type or "message", self._left_out)

    def _reset(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0
        self._left_out = 0
        self._type = ""
