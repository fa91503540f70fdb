"""The source of server-sent events, `SseSource`: each that arrives is stored once, before any task sees it.

After the connection ends, the next one asks for what follows the last stored event (`Last-Event-ID`), so nothing is
missing and nothing comes twice if the server gives its events ids and keeps them long enough. A server that gives no
ids cannot do so: each gap is counted and reported.
"""

from __future__ import annotations

import http.client
import os
import queue
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from causal.errors import PipelineError
from operators.sources.messages.event_stream import Event, EventParser
from operators.sources.messages.message_log import Message, MessageWriter, Note
from operators.sources.messages.receiving import Disconnected, Ended, MessageSource, Refused, status_error

READ_BYTES = 1 << 16
QUEUED_MAX = 16
"""The events that are read ahead of those that are being stored."""
NO_CONTENT = 204
"""The status with which a server says that no more events will follow."""


class SseSource(MessageSource):
    """A source of server-sent events; it ends when the server answers with status 204.

    Args:
        url: "https://host/path", or "http://…" without TLS.
        decode: "json", "text", "bytes", or a pure function of an event's data as bytes.
        headers: headers of the request, such as Authorization; they do not follow a redirection.
        silence_s: the silence after which the connection is given up; servers should send a comment more often.
        with_metadata: whether records are dicts of `value`, `id`, `event` (its type) and `received_at` (seconds).
        message_bytes_max: the maximum size of the data of an event; a larger one is not a record.
    """

    schemes = ("http", "https")
    fields = ("id", "event", "received_at")

    def __init__(
        self,
        url: str,
        decode: str | Callable[[bytes], Any] = "json",
        *,
        headers: Mapping[str, str] | None = None,
        silence_s: float = 90.0,
        with_metadata: bool = False,
        message_bytes_max: int = 1 << 20,
    ) -> None:
        super().__init__(url, decode, headers, with_metadata, message_bytes_max)
        if isinstance(silence_s, bool) or not isinstance(silence_s, (int, float)) or not 0 < silence_s <= 86400:
            raise PipelineError(f"{self._where} has silence_s {silence_s!r}; use seconds, above 0 and up to 86,400")
        self.silence_s = silence_s

    def resumes(self, writer: MessageWriter, note: Note) -> bool:
        """Return whether there is an id with which the server can continue."""
        return bool(note.id)

    @contextmanager
    def connected(self, writer: MessageWriter | None, note: Note) -> Iterator[_EventStream]:
        """Connect, and ask for what follows the last stored event."""
        request = urllib.request.Request(self.url)
        own = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        last = {"Last-Event-ID": note.id.encode().decode("latin-1")} if note.id else {}
        for name, value in {**own, **self.headers, **last}.items():
            # A redirection may lead to another server, which must not receive secrets.
            request.add_unredirected_header(name, value)
        with self._errors_translated():
            answer = urllib.request.urlopen(request, timeout=self.silence_s)
        with answer:
            self._check(answer)
            stream = _EventStream(self, answer, note.id)
            try:
                yield stream
            finally:
                stream.end()

    def _check(self, answer: Any) -> None:
        if answer.status == NO_CONTENT:
            raise Ended
        kind = answer.headers.get_content_type()
        if answer.status != http.client.OK or kind != "text/event-stream":
            raise Refused(
                f"{self.place} answers with status {answer.status} and content of type {kind:.60}, not with "
                "text/event-stream; correct the path of the url"
            )

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except urllib.error.HTTPError as problem:
            with problem:
                raise status_error(self.place, problem.code) from None
        except (OSError, ValueError, http.client.HTTPException) as problem:  # urllib's errors are OSErrors
            reason = problem.reason if isinstance(problem, urllib.error.URLError) else problem
            if isinstance(reason, TimeoutError):
                raise Disconnected(
                    f"{self.place} has sent nothing for {self.silence_s:g} s; raise silence_s if that is usual"
                ) from None
            words = " ".join(str(reason).split())[:200] or type(problem).__name__
            raise Disconnected(f"{self.place} cannot be reached: {words}; check the url and the network") from None


class _EventStream:
    """One connection, whose events a thread reads ahead."""

    def __init__(self, source: SseSource, answer: Any, last_id: str) -> None:
        self._source = source
        self._answer = answer
        self._parser = EventParser(last_id, source.message_bytes_max)
        self._queue: queue.Queue[Message | Exception] = queue.Queue(QUEUED_MAX)
        self._socket = socket.socket(fileno=os.dup(answer.fileno()))
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def retry_s(self) -> float:
        """The pause that the server asks for."""
        return (self._parser.retry_ms or 0) / 1000

    def received(self, timeout_s: float) -> Message | None:
        """See `Connection.received`."""
        try:
            received = self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(received, Exception):
            raise received
        return received

    def end(self) -> None:
        """End the connection, and with it a read for which closing the answer would wait."""
        with self._socket, suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        source = self._source
        problem: Exception = Disconnected(f"{source.place} has ended the stream")
        try:
            with source._errors_translated():
                while data := self._answer.read1(READ_BYTES):
                    for event in self._parser.add(data):
                        self._queue.put(self._message(event))
        except Exception as caught:
            problem = caught
        self._queue.put(problem)

    def _message(self, event: Event) -> Message:
        bound, size = self._source.message_bytes_max, len(event.data) + event.bytes_left_out
        why = f"an event of {size:,} bytes (message_bytes_max is {bound:,})" if event.bytes_left_out else ""
        return Message(event.data, time.time(), event.id, event.type, why)
