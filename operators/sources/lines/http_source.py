"""Lines over HTTP as a source: a listener to which clients post, or a page that is polled.

The listener answers 200 once the lines of a request are on disk in the job's ingest log; from then on, each line counts
exactly once. Requests that wait at the same moment share a batch. A request is accepted completely or not at all.

    200  the lines are the job's                      413  the body is too large
    400  a line is not JSON, or too long; names the line  429  too many lines per second, or too many requests together
    401  the token is missing or wrong                503  not written; send it again
    404  another path                                 411  the length of the body is not known
    415  the body is encoded (gzip, …)
"""

from __future__ import annotations

import hmac
import json
import queue
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from causal.network.addresses import check_url, is_loopback
from causal.records.unreadable import Unreadable
from operators.sources.files.cutting_rows import BYTE_ORDER_MARK
from operators.sources.lines.lines_log import LineSource, LineWriter, cutter_of
from operators.sources.lines.polling import poll

CLIENT_TIMEOUT_S = 10.0
"""The longest pause in a request."""
WRITTEN_WITHIN_S = 30.0
"""The longest time that a request waits for the disk, or for the job to make room."""
LINGER_S, LINGER_BYTES_MAX = 1.0, 1 << 20
"""The longest time for which a connection stays open after the answer, and the bytes that are read meanwhile."""
REFUSALS_MAX = 32
"""The refused connections that get an answer at the same moment; others are closed."""
REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BATCH_REQUESTS = 256
LENGTH_DIGITS_MAX = 18


class HttpSource(LineSource):
    """A source of lines that arrive by HTTP, with either `listen` or `poll`. It never ends.

    Args:
        listen: the "HOST:PORT" to listen on. Clients POST lines there; listening for other hosts requires a token.
        poll: a URL whose lines become records each time its content changes.
        every_s: the interval between two polls.
        path: the path to which clients post.
        format: "json": records are the values of the lines; "text": records are str.
        token: the token that requests must contain as `Authorization: Bearer TOKEN`, and that polls send.
        body_bytes_max: the maximum size of a body; a larger body is refused or, if it was polled, reported and skipped.
        rows_per_s: the maximum rate of lines, above which requests are refused with 429; None for no limit.
        requests_max: the maximum number of simultaneous requests.
    """

    place = "HTTP"

    def __init__(
        self,
        listen: str | None = None,
        *,
        poll: str | None = None,
        every_s: float = 10.0,
        path: str = "/",
        format: str = "json",
        token: str | None = None,
        body_bytes_max: int = 1 << 20,
        rows_per_s: float | None = None,
        requests_max: int = 64,
    ) -> None:
        super().__init__(format, body_bytes_max)
        where = self._where
        if (listen is None) == (poll is None):
            raise PipelineError(f"{where}: pass either listen='127.0.0.1:8080' or poll='https://…'")
        self.address = None if listen is None else _address(where, listen)
        self.url = poll
        self.every_s = every_s
        self.path = path
        self.token = token
        self.rows_per_s = rows_per_s
        self.requests_max = requests_max
        if self.address is not None and not is_loopback(self.address[0]) and not token:
            raise PipelineError(f"{where} listens at {listen}, which other machines can reach; use a token")
        if token is not None and (type(token) is not str or not token.isascii() or not token.isprintable()):
            raise PipelineError(f"{where}: its token cannot be sent in a header; use printable ASCII")
        if type(path) is not str or not path.startswith("/") or not path.isascii() or not path.isprintable():
            raise PipelineError(f"{where} has path {path!r}; use one that begins with /, percent-encoded")
        if poll is not None:
            check_url(f"{where} polls", poll)
        for name, value in (("every_s", every_s), ("rows_per_s", rows_per_s)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
                raise PipelineError(f"{where} has {name} {value!r}; use a number above 0")
        if type(requests_max) is not int or not 1 <= requests_max <= 4096:
            raise PipelineError(f"{where} has requests_max {requests_max!r}; use 1 to 4096")

    def ingest(self, writer: LineWriter, name: str, job_directory: Path, root_pid: int) -> None:
        """Write posted or fetched lines to the log; this method ends only by raising an exception."""
        if self.address is not None:
            _Listener(self, writer, self.address).serve()
        else:
            poll(self, writer, name)

    def lines_of(self, body: bytes) -> list[bytes]:
        """Return the lines of a request body.

        Raises:
            ValueError: a line is not a record; the message names the line.
        """
        lines = [line.removesuffix(b"\r") for line in body.removeprefix(BYTE_ORDER_MARK).split(b"\n")]
        if not lines[-1]:
            lines.pop()
        numbers = [number for number, line in enumerate(lines, 1) if self.format == "text" or line.strip()]
        lines = [lines[number - 1] for number in numbers]
        cutter = cutter_of("line", self.format, self.row_bytes_max)
        rows = cutter.cut(b"".join(line + b"\n" for line in lines), 1, True).rows
        for number, row in zip(numbers, rows, strict=True):
            if type(row) is Unreadable:
                raise ValueError(f"line:{number}: {row.why}")
        return lines


def _address(where: str, listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":") if isinstance(listen, str) else ("", "", "")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
        raise PipelineError(f"{where} listens at {listen!r}; use HOST:PORT, for example 127.0.0.1:8080 or [::1]:8080")
    return host, int(port)


@dataclass(eq=False)
class _Posted:
    """The lines of one request, and the outcome of that request."""

    lines: list[bytes]
    done: threading.Event = field(default_factory=threading.Event)
    written: bool = False
    withdrawn: bool = False


class _Listener:
    """A server that receives requests in separate threads and writes their lines in the thread that calls `serve`."""

    def __init__(self, source: HttpSource, writer: LineWriter, address: tuple[str, int]) -> None:
        self.source = source
        self._writer = writer
        self._address = address
        self._posted: queue.SimpleQueue[_Posted] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._credit, self._credited_s = source.rows_per_s or 0.0, time.monotonic()

    def serve(self) -> None:
        listener = self

        class Handler(_Handler):
            """The handler of requests to this listener."""

            owner = listener

        try:
            server = _server_at(self._address, Handler, self.source.requests_max)
        except OSError as problem:
            where = f"{self._address[0]}:{self._address[1]}"
            raise PipelineError(
                f"cannot listen on {where}: {problem.strerror or problem}; choose another port"
            ) from None
        with server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            while True:
                self._write_next()

    def _write_next(self) -> None:
        posted = [self._posted.get()]
        while not self._posted.empty() and len(posted) < BATCH_REQUESTS:
            posted.append(self._posted.get())
        with self._lock:
            taken = [each for each in posted if not each.withdrawn]
        lines = [line for each in taken for line in each.lines]
        if lines:
            self._writer.publish(lines, "")
        with self._lock:
            for each in taken:
                each.written = True
        for each in taken:
            each.done.set()

    def post(self, lines: list[bytes]) -> bool:
        """Post lines, and return whether they were written; if not, they normally never will be.

        Lines may still be written after this method returns False if their write had begun but took too long.
        """
        posted = _Posted(lines)
        self._posted.put(posted)
        posted.done.wait(WRITTEN_WITHIN_S)
        with self._lock:
            posted.withdrawn = not posted.written
            return posted.written

    def admits(self, rows: int) -> bool:
        """Return whether the rate allows `rows` further lines."""
        rate = self.source.rows_per_s
        if rate is None:
            return True
        with self._lock:
            now_s = time.monotonic()
            self._credit = min(max(rate, 1.0), self._credit + (now_s - self._credited_s) * rate)
            self._credited_s = now_s
            if self._credit <= 0:
                return False
            self._credit -= rows  # the credit may become negative, which delays later requests
            return True


def _server_at(address: tuple[str, int], handler: type[_Handler], requests_max: int) -> _Server:
    """Return a server at the address, with the address family of the address's host."""
    family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return (_Server6 if family == socket.AF_INET6 else _Server)(address, handler, requests_max)


class _Server(ThreadingHTTPServer):
    """A server with a limited number of connections."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[_Handler], requests_max: int) -> None:
        self._room = threading.Semaphore(requests_max)
        self._refusals = threading.Semaphore(REFUSALS_MAX)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        elif self._refusals.acquire(blocking=False):
            threading.Thread(target=self._refuse, args=(request,), daemon=True).start()
        else:
            self.close_request(request)

    def _refuse(self, request: Any) -> None:
        try:
            with suppress(OSError):
                request.sendall(REFUSAL)
            self.shutdown_request(request)
        finally:
            self._refusals.release()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection once the client has closed it, or after a short time.

        Closing the connection with unread bytes would reset it, and the client would lose the answer.
        """
        deadline_s, left = time.monotonic() + LINGER_S, LINGER_BYTES_MAX
        with suppress(OSError):
            request.shutdown(socket.SHUT_WR)
            while left > 0 and (room_s := deadline_s - time.monotonic()) > 0:
                request.settimeout(room_s)
                read = len(request.recv(1 << 16))
                left = left - read if read else 0
        self.close_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        print(f"a request from {client_address[0]} failed with {sys.exc_info()[1]!r}", file=sys.stderr)


class _Server6(_Server):
    """A `_Server` at an IPv6 address."""

    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    """The handler of one connection."""

    owner: _Listener
    timeout = CLIENT_TIMEOUT_S
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        source = self.owner.source
        if self.path != source.path:
            return self._answer(404, f"post to {source.path}")
        bearer = f"Bearer {source.token}".encode()
        if source.token and not hmac.compare_digest(self.headers.get("Authorization", "").encode(), bearer):
            return self._answer(401, "the token is missing or wrong")
        lengths = {each.strip() for each in self.headers.get_all("Content-Length", ())}
        length = lengths.pop() if len(lengths) == 1 and "Transfer-Encoding" not in self.headers else ""
        if not length.isascii() or not length.isdecimal() or len(length) > LENGTH_DIGITS_MAX:
            return self._answer(411, "send one Content-Length header and no chunks")
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            return self._answer(415, f"send the lines without the encoding {encoding[:40]!r}")
        if int(length) > source.row_bytes_max:
            return self._answer(413, f"at most {source.row_bytes_max:,} bytes")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return None
        try:
            lines = source.lines_of(body)
        except ValueError as problem:
            return self._answer(400, str(problem), read=True)
        if not self.owner.admits(len(lines)):
            return self._answer(429, "too many lines per second", read=True)
        if lines and not self.owner.post(lines):
            return self._answer(503, "not written; send it again", read=True)
        return self._answer(200, "", read=True, rows=len(lines))

    def _answer(self, status: int, error: str, read: bool = False, **more: Any) -> None:
        body = json.dumps({"error": error, **more} if error else more).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status in (429, 503):
            self.send_header("Retry-After", "1")
        if not read:  # otherwise, the server would read the rest of this request as the next one
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Do nothing, because a line per request would fill the disk."""
