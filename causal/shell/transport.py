"""ZeroMQ as a transport: one ROUTER that neighbours upstream dial, one DEALER per neighbour downstream.

A socket promises nothing: messages may be lost silently at a reconnect.  Positions, credits and
the in-flight log carry correctness, so no high-water mark may ever drop (credits bound what is
queued), and nothing lingers at close.
"""

from __future__ import annotations

from collections.abc import Iterator

import zmq

from causal.channels.wire import FRAME_BYTES_MAX

RECEIVE_MAX = 64
"""The most frames taken from one socket before the next one."""
_HEARTBEAT_MS = 500


def _set_up(socket: zmq.Socket[bytes]) -> None:
    socket.linger = 0
    socket.sndhwm = 0
    socket.rcvhwm = 0
    socket.maxmsgsize = FRAME_BYTES_MAX
    socket.setsockopt(zmq.RECONNECT_IVL, 5)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 5000)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT_MS)


class Transport:
    """The data plane of one process.  `endpoint` is known before any task runs here."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, poller: zmq.Poller) -> None:
        self._context = context
        self._poller = poller
        self._dealers: dict[int, zmq.Socket[bytes]] = {}
        self.undeliverable = 0
        self._router = context.socket(zmq.ROUTER)
        _set_up(self._router)
        self._router.router_mandatory = True
        self._router.bind(endpoint)
        self.endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        poller.register(self._router, zmq.POLLIN)

    def dial(self, target: int, endpoint: str) -> None:
        """Connects to the task downstream; an older connection is closed, and what was queued to it is dropped."""
        old = self._dealers.pop(target, None)
        if old is not None:
            self._poller.unregister(old)
            old.close(0)
        socket = self._context.socket(zmq.DEALER)
        _set_up(socket)
        socket.connect(endpoint)
        self._dealers[target] = socket
        self._poller.register(socket, zmq.POLLIN)

    def send(self, target: int, parts: list[bytes]) -> None:
        """Sends a frame if it can; the protocol handles frames that do not arrive."""
        socket = self._dealers.get(target)
        if socket is None:
            self.undeliverable += 1
            return
        try:
            socket.send_multipart(parts, zmq.NOBLOCK)
        except zmq.Again:
            self.undeliverable += 1

    def reply(self, link: bytes, parts: list[bytes]) -> None:
        try:
            self._router.send_multipart([link, *parts], zmq.NOBLOCK)
        except zmq.ZMQError as problem:
            if problem.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.undeliverable += 1

    def receive(self, ready: dict[zmq.Socket[bytes], int]) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yields (link, parts) of frames that have arrived; the link is empty for answers from downstream."""
        for socket in list(self._dealers.values()):
            if socket in ready:
                for parts in _take(socket):
                    yield b"", parts
        if self._router in ready:
            for parts in _take(self._router):
                yield parts[0], parts[1:]

    def close(self) -> None:
        for socket in (*self._dealers.values(), self._router):
            self._poller.unregister(socket)
            socket.close(0)
        self._dealers.clear()


def _take(socket: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    for _ in range(RECEIVE_MAX):
        try:
            yield socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
