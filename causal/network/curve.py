"""Authentication of the other end of a socket: CURVE keys, and the ZAP handler that maps public keys to host names.

Every socket that other machines can reach is configured by this module. A connection without the key of a host in the
roster never delivers a message. For every message that is delivered, `user_of` returns the host that sent it,
regardless of the content.
"""

from __future__ import annotations

import logging
from typing import Any

import zmq
from zmq.utils import z85

from causal.network.roster import KeyPair, Roster

DOMAIN = b"causal"
ZAP = "inproc://zeromq.zap.01"
REFUSALS_LOGGED_MAX = 100
"""The number of refused keys that are logged; further refusals are only counted."""

_log = logging.getLogger("causal.curve")


class Authenticator:
    """The ZAP handler of one context, which adds one socket to a poll loop.

    The handler must exist before the first CURVE server of the context is bound, and the loop must serve it, because
    each handshake waits for its answer.

    State: `roster` may be replaced at any time; the new roster applies to later handshakes.
    """

    def __init__(self, context: zmq.Context[Any], roster: Roster) -> None:
        self.roster = roster
        self.refused = 0
        """The number of refused handshakes."""
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(ZAP)
        self._complaints: set[bytes] = set()

    def serve(self) -> None:
        """Answer the waiting handshakes."""
        while True:
            try:
                request = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.socket.send_multipart(self._answer(request))

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """Return the answer to a ZAP request (RFC 27): version, request id, status, reason, user id, metadata."""
        version, number = request[0] if request else b"1.0", request[1] if len(request) > 1 else b""
        name = None
        if len(request) == 7 and version == b"1.0" and request[5] == b"CURVE" and len(request[6]) == 32:
            name = self.roster.name_of(z85.encode(request[6]).decode())
        if name is not None:
            return [version, number, b"200", b"OK", name.encode(), b""]
        self.refused += 1
        self._complain(request)
        return [version, number, b"400", b"this key is not in the roster", b"", b""]

    def _complain(self, request: list[bytes]) -> None:
        address, key = (request[3], request[6]) if len(request) == 7 else (b"?", b"")
        if key not in self._complaints and len(self._complaints) < REFUSALS_LOGGED_MAX:
            self._complaints.add(key)
            shown = z85.encode(key).decode() if len(key) == 32 else "malformed"
            _log.warning("refused %s: its public key %s is not in the roster", address.decode(errors="replace"), shown)

    def close(self) -> None:
        self.socket.close(0)


def new_key(name: str) -> KeyPair:
    """Create a key pair."""
    public, secret = zmq.curve_keypair()
    return KeyPair(name, public.decode(), secret.decode())


def serve_with(socket: zmq.Socket[Any], key: KeyPair) -> None:
    """Configure a socket, before it is bound, to accept only hosts known to the context's `Authenticator`."""
    socket.curve_server = True
    socket.curve_secretkey = key.secret.encode()
    socket.curve_publickey = key.public.encode()
    socket.zap_domain = DOMAIN
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def connect_with(socket: zmq.Socket[Any], key: KeyPair, server_public: str) -> None:
    """Configure a socket, before it connects, to prove its identity and accept only the owner of `server_public`."""
    socket.curve_secretkey = key.secret.encode()
    socket.curve_publickey = key.public.encode()
    socket.curve_serverkey = server_public.encode()


def user_of(frame: zmq.Frame) -> str:
    """Return the host that sent this frame, as proved by its key; return "" for a socket without CURVE."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""
