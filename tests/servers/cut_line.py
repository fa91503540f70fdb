"""A way to a server that can be cut: connections are reset and refused, although the server keeps running."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE_BYTES = 1 << 16


class Line:
    """A TCP port of this machine that leads to another one.

    Args:
        target: the other port.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Refuse connections inside the context, and reset those that there are."""
        self.close()
        try:
            yield
        finally:
            self._listener = self._listen(self.port)

    def close(self) -> None:
        """Close the port and all connections."""
        _close(self._listener)
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            _close(each)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                with self._lock:
                    self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(PIECE_BYTES):
            sink.sendall(data)
    _close(sink)


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
    each.close()
