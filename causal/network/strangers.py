"""A limit on unauthenticated connections to a CURVE socket: if there are too many, the oldest are closed.

ZeroMQ accepts every connection, and each connection uses a descriptor until its handshake is complete or has lasted
`HANDSHAKE_MS`. Without a limit, silent connections would use up all descriptors, and the process could not open files
either. `unbind` does not help, because it also closes the established connections. A connection that has proved a key
is never closed by this module. A legitimate host that connects meanwhile finishes its handshake before its connection
becomes the oldest.
"""

from __future__ import annotations

import logging
import resource
import socket
import struct
import time
from typing import Any

import zmq

HANDSHAKE_MS = 2000
"""The time within which a connection must prove its key."""

STRANGERS_MAX = 256
"""The maximum number of unfinished handshakes on one socket; it is lower if the process has few descriptors."""

SHARE = 8
"""The divisor for the number of descriptors: unproved connections may use at most this fraction of them."""

_SENT_TO_STRANGERS_MAX = 64 + 170
"""The size of the ZMTP greeting and CURVE WELCOME; a peer receives more only after its key has been accepted."""

_ACKED = struct.Struct("120xQ")
"""`tcpi_bytes_acked` in the Linux `struct tcp_info`; a peer cannot acknowledge bytes that were not sent to it."""

_EVENT = struct.Struct("=Hi")

_log = logging.getLogger("causal.strangers")


class Strangers:
    """The connections to one ROUTER that are still in their handshake; adds one socket to a poll loop.

    Create it before the ROUTER is bound, and close it before the ROUTER is closed.
    """

    def __init__(self, context: zmq.Context[Any], router: zmq.Socket[Any]) -> None:
        self._router = router
        self.refused = 0
        """The number of connections that were closed."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = STRANGERS_MAX if soft == resource.RLIM_INFINITY else min(STRANGERS_MAX, soft // SHARE)
        self._since: dict[int, float] = {}
        """Descriptor → the time at which it was noticed, oldest first; some have been authenticated since then."""
        self.socket = context.socket(zmq.PAIR)
        self.socket.linger = 0
        self.socket.rcvhwm = 0  # with a limit, ZeroMQ's own thread would wait for this loop while holding a lock
        router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        address = f"inproc://strangers-{self.socket.underlying}"
        router.monitor(address, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.socket.connect(address)

    def serve(self) -> None:
        """Process socket events, and close the oldest connections if too many have not proved a key."""
        while True:
            try:
                event, descriptor = _EVENT.unpack(self.socket.recv_multipart(zmq.NOBLOCK)[0])
            except zmq.Again:
                break
            self._since.pop(descriptor, None)
            if event == zmq.EVENT_ACCEPTED:
                self._since[descriptor] = time.monotonic()
        if not self._since:
            return
        port = int(self._router.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0").rpartition(":")[2])
        accepted_s = time.monotonic() - 1.5 * HANDSHAKE_MS / 1000
        while self._since:
            descriptor, since_s = next(iter(self._since.items()))
            if since_s > accepted_s and len(self._since) <= self._most:
                return
            del self._since[descriptor]
            if since_s > accepted_s and _end(descriptor, port):
                if not self.refused:
                    _log.warning(
                        "more than %d connections to port %d have not proved a key; the oldest are closed",
                        self._most,
                        port,
                    )
                self.refused += 1

    def close(self) -> None:
        self._router.disable_monitor()
        self.socket.close(0)


def _end(descriptor: int, port: int) -> bool:
    """Shut down a connection to `port`, as its peer would, unless its key was accepted; ZeroMQ then closes the socket.

    Returns: whether the connection was shut down; false if ZeroMQ has already closed it or its descriptor was reused.
    """
    connection = None
    try:
        connection = socket.socket(fileno=descriptor)
        acked = _ACKED.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED.size))[0]
        if connection.getsockname()[1] != port or acked > _SENT_TO_STRANGERS_MAX:
            return False
        connection.shutdown(socket.SHUT_RDWR)
    except (OSError, struct.error):
        return False
    finally:
        if connection is not None:
            connection.detach()
    return True
