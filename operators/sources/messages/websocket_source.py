"""The source of messages of a WebSocket, `WebSocketSource`: each that arrives is stored once, before a task sees it.

A WebSocket has no way to send again what was sent while no one listened. `resume=` asks the server for it, in the words
of the server's own protocol; without it, such messages are lost, and each gap is counted and reported.

Needs websockets 15 (extra `websocket`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from causal.errors import PipelineError
from causal.records.unreadable import Unreadable
from operators.sources.messages.message_log import Message, MessageWriter, Note
from operators.sources.messages.receiving import Disconnected, Ended, MessageSource, status_error
from operators.sources.payloads import decoded

if TYPE_CHECKING:
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import ClientConnection

CONNECT_S, CLOSE_S = 10.0, 1.0
PING_S = 20.0
"""The interval between two pings, and the longest wait for the answer to one."""
NORMAL, TOO_BIG = 1000, 1009
"""Codes with which a connection is closed."""
Text = str | bytes


class WebSocketSource(MessageSource):
    """A source of the messages of a WebSocket.

    Args:
        url: "wss://host/path", or "ws://…" without TLS.
        decode: "json", "text", "bytes", or a pure function of a message's bytes.
        subscribe: the message, or list of messages, that is sent when a connection begins.
        resume: a function from the last stored record to the message, or list of messages, that is sent instead of
            `subscribe` when there is such a record; the server must then continue after this record.
        headers: headers of the request, such as Authorization.
        ends: whether the source ends when the server closes the connection normally (code 1000).
        with_metadata: whether records are dicts of `value` and `received_at` (seconds).
        message_bytes_max: the maximum size of a message; a larger one ends the job with a line.
    """

    schemes = ("ws", "wss")

    def __init__(
        self,
        url: str,
        decode: str | Callable[[bytes], Any] = "json",
        *,
        subscribe: Text | Sequence[Text] = (),
        resume: Callable[[Any], Text | Sequence[Text]] | None = None,
        headers: Mapping[str, str] | None = None,
        ends: bool = False,
        with_metadata: bool = False,
        message_bytes_max: int = 1 << 20,
    ) -> None:
        super().__init__(url, decode, headers, with_metadata, message_bytes_max)
        self.subscribe = _texts(f"{self._where}: subscribe", subscribe)
        if resume is not None and not callable(resume):
            raise PipelineError(f"{self._where}: resume is not a function from the last record to a message")
        self.resume = resume
        self.ends = ends

    def _reception(self) -> dict[str, Any]:
        return super()._reception() | ({} if self.resume is None else {"_decode": self._decode})

    def resumes(self, writer: MessageWriter, note: Note) -> bool:
        """Return whether there is a record from which `resume` makes a message."""
        return self._last(writer) is not None

    @contextmanager
    def connected(self, writer: MessageWriter | None, note: Note) -> Iterator[_WebSocket]:
        """Connect and subscribe; without a writer, only connect."""
        try:
            from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException
            from websockets.sync.client import connect
        except ImportError as problem:
            raise PipelineError(
                f"WebSocketSource needs websockets ({problem}); run `pip install -e '.[websocket]'` in the checkout"
            ) from None
        try:
            with connect(
                self.url, additional_headers=self.headers, max_size=self.message_bytes_max, open_timeout=CONNECT_S,
                ping_interval=PING_S, ping_timeout=PING_S, close_timeout=CLOSE_S,
            ) as connection:  # fmt: skip
                for message in () if writer is None else self._first(writer):
                    connection.send(message)
                yield _WebSocket(self, connection)
        except ConnectionClosed as problem:
            raise self._closed(problem) from None
        except InvalidStatus as problem:
            raise status_error(self.place, problem.response.status_code) from None
        except (WebSocketException, OSError) as problem:
            # The texts of other exceptions of the library may have the url, or that of a proxy.
            words = _line(problem) if isinstance(problem, (InvalidHandshake, OSError)) else type(problem).__name__
            raise Disconnected(f"{self.place} cannot be reached: {words}; check the url and the network") from None

    def _first(self, writer: MessageWriter) -> Sequence[Text]:
        """Return the first messages of a connection."""
        last = self._last(writer)
        if last is None or self.resume is None:
            return self.subscribe
        try:
            return _texts(f"{self._where}: the result of resume", self.resume(last[0]))
        except PipelineError:
            raise
        except Exception as problem:
            raise PipelineError(f"{self._where}: resume failed for the last record: {_line(problem)}") from problem

    def _last(self, writer: MessageWriter) -> tuple[Any] | None:
        """Return the last record that the log has; None if it has none, or no function makes use of it."""
        if self.resume is None:
            return None
        records = (decoded(self._decode, message.payload, "") for message in writer.stored())
        return next(((record,) for record in records if type(record) is not Unreadable), None)

    def _closed(self, problem: ConnectionClosed) -> Exception:
        received, sent = problem.rcvd, problem.sent
        if sent is not None and sent.code == TOO_BIG and not problem.rcvd_then_sent:
            return PipelineError(
                f"{self._where}: {self.place} has sent a message of more than {self.message_bytes_max:,} bytes, which "
                "was not stored; raise message_bytes_max"
            )
        if self.ends and received is not None and received.code == NORMAL:
            return Ended()
        reason = "the connection was lost" if received is None else f"the server has closed it ({received.code})"
        return Disconnected(f"{self.place}: {reason}")


class _WebSocket:
    """One connection."""

    retry_s = 0.0

    def __init__(self, source: WebSocketSource, connection: ClientConnection) -> None:
        self._source = source
        self._connection = connection

    def received(self, timeout_s: float) -> Message | None:
        """See `Connection.received`."""
        from websockets.exceptions import ConnectionClosed

        try:
            return Message(self._connection.recv(timeout_s, decode=False), time.time())
        except TimeoutError:
            return None
        except ConnectionClosed as problem:
            raise self._source._closed(problem) from None


def _texts(said: str, messages: Any) -> tuple[Text, ...]:
    """Return messages as a tuple; one that is no text or bytes is an error that does not show it."""
    each = (messages,) if isinstance(messages, (str, bytes)) else messages
    if not isinstance(each, (list, tuple)) or not all(isinstance(message, (str, bytes)) for message in each):
        raise PipelineError(
            f"{said} is a {type(messages).__name__}; use text or bytes (json.dumps), or a list of these"
        )
    return tuple(each)


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:300] or type(problem).__name__
