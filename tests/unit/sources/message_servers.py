"""Servers of numbered messages on loopback: server-sent events over HTTP, and a WebSocket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT_S = 20.0


class Feed:
    """Messages that a server sends to all connections, and again to those that ask for them.

    Attributes:
        keeps: whether a connection can ask for earlier messages; if not, it gets only later ones.
        requests: the headers, or the first message, of each connection.
        connections: the number of connections that are open.
    """

    def __init__(self, keeps: bool) -> None:
        self.keeps = keeps
        self.requests: list[Any] = []
        self.connections = 0
        self._messages: list[bytes] = []
        self._dropped = 0
        self._changed = threading.Condition()

    def put(self, *messages: Any) -> None:
        """Send messages; values other than bytes are sent as JSON."""
        with self._changed:
            self._messages += [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
            self._changed.notify_all()

    def drop(self) -> None:
        """End all connections."""
        with self._changed:
            self._dropped += 1
            self._changed.notify_all()

    @property
    def end(self) -> int:
        """The number of messages so far."""
        return len(self._messages)

    def sent(self, after: int | None) -> Iterator[tuple[int, bytes]]:
        """Yield the numbers and the messages of one connection until it is dropped."""
        with self._changed:
            dropped, place = self._dropped, len(self._messages) if after is None or not self.keeps else after + 1
            self.connections += 1
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda p=place: self._dropped > dropped or p < len(self._messages))  # type: ignore[misc]
                    if self._dropped > dropped:
                        return
                    message = self._messages[place]
                yield place, message
                place += 1
        finally:
            with self._changed:
                self.connections -= 1


class EventServer(ThreadingHTTPServer):
    """A server of events; each has an id if `feed.keeps`.

    Attributes:
        answers: the bytes with which the next requests are answered instead.
    """

    daemon_threads = True

    def __init__(self, feed: Feed) -> None:
        super().__init__(("127.0.0.1", 0), _Events)
        self.feed = feed
        self.answers: list[bytes] = []
        self.url = f"http://127.0.0.1:{self.server_port}/events"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: clients are killed."""


class _Events(BaseHTTPRequestHandler):
    server: EventServer

    def do_GET(self) -> None:
        feed = self.server.feed
        feed.requests.append({name.lower(): value for name, value in self.headers.items()})
        if self.server.answers:
            self.wfile.write(self.server.answers.pop(0))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        last = self.headers.get("Last-Event-ID")
        for number, message in feed.sent(int(last) if last else -1 if feed.keeps else None):
            id_ = b"id: %d\n" % number if feed.keeps else b""
            self.wfile.write(id_ + b"".join(b"data: %s\n" % line for line in message.split(b"\n")) + b"\n")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""


@contextmanager
def event_server(keeps: bool = True) -> Iterator[EventServer]:
    """Yield a running server."""
    with EventServer(Feed(keeps)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.feed.drop()
            server.shutdown()
            thread.join()


@contextmanager
def socket_server(keeps: bool = True, code: int = 1000) -> Iterator[tuple[str, Feed]]:
    """Yield the URL and the feed of a WebSocket.

    Its first message is expected to be `{"after": number}`, except if the feed does not keep messages.

    Args:
        code: the code with which dropped connections are closed.
    """
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.server import serve

    feed = Feed(keeps)

    def handle(connection: Any) -> None:
        with suppress(ConnectionClosed, TimeoutError):
            first = json.loads(connection.recv(WAIT_S)) if keeps else {"after": None}
            headers = {name.lower(): value for name, value in connection.request.headers.raw_items()}
            feed.requests.append((headers, first))
            for _, message in feed.sent(first["after"]):
                connection.send(message, text=True)
            connection.close(code)

    with serve(handle, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield "ws://{}:{}/feed".format(*server.socket.getsockname()), feed
        finally:
            feed.drop()
            server.shutdown()
            thread.join()
