"""A server whose answers are bytes that a test has written: whole, cut short, or no HTTP."""

from __future__ import annotations

import re
import socket
import threading


class Canned:
    """A server that gives these answers, byte by byte as they are, one per connection, the last forever."""

    def __init__(self, *answers: bytes) -> None:
        self.requests: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        threading.Thread(target=self._serve, args=(list(answers),), daemon=True).start()

    def _serve(self, answers: list[bytes]) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                self.requests.append(_request(connection))
                connection.sendall(answers.pop(0) if len(answers) > 1 else answers[0])

    def close(self) -> None:
        self._listening.close()


def _request(connection: socket.socket) -> bytes:
    """Return a request with its body: a connection that is closed before all is read resets, and cuts the answer."""
    asked = b""
    while b"\r\n\r\n" not in asked and (data := connection.recv(1 << 16)):
        asked += data
    head, _, body = asked.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    while length is not None and len(body) < int(length[1]) and (data := connection.recv(1 << 16)):
        asked, body = asked + data, body + data
    return asked


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body
