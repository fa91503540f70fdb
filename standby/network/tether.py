"""The tether: a TCP connection, closed by the kernel if the agent dies, from each `causal agent` to the supervisor.

A tether carries two lines: the supervisor's challenge, and the host's name and session with a proof.  The proof is
computed with a secret of that host.  The host has received this secret over the authenticated connection, and it is
never sent over the tether, so an eavesdropper cannot use the proof for another connection.  The end of a tether
immediately reports the death of the host's root process, even by SIGKILL.  If a host is cut off, its tether does not
end, and only its silence shows the loss.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

LINE_BYTES_MAX = 200
STRANGERS_MAX = 64
"""The number of connections that may be unidentified at the same time; more are refused immediately."""

INTRODUCTION_S = 2.0
"""The time that a connection has to identify itself."""


@dataclass(slots=True)
class _End:
    connection: socket.socket
    since_s: float
    challenge: str
    received: bytes = b""
    host: str = ""
    session: str = ""


@dataclass(slots=True)
class Tethers:
    """The supervisor's ends of all tethers.

    Args:
        address: the local address to listen on.
    """

    address: str
    listener: socket.socket = field(init=False)
    port: int = field(init=False)
    wake: select.epoll = field(init=False)
    """Ready if an event has occurred on any tether, so that there is one descriptor to wait for with any number of
    hosts."""
    _ends: dict[int, _End] = field(init=False, default_factory=dict)
    _seed: str = field(init=False)

    def __post_init__(self) -> None:
        self._seed = secrets.token_hex(16)
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self.listener = socket.create_server((self.address, 0), family=family, backlog=STRANGERS_MAX)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.wake = select.epoll()
        self.wake.register(self.listener.fileno(), select.EPOLLIN)

    def secret_of(self, host: str) -> str:
        """Return the secret with which only this host can prove that a tether belongs to it."""
        return hmac.digest(self._seed.encode(), host.encode(), "sha256").hex()

    def closed(self) -> Iterator[tuple[str, str]]:
        """Process socket events and yield (host, session) for each tether that has ended."""
        ready = [descriptor for descriptor, _ in self.wake.poll(0)]
        for descriptor in ready:
            end = self._ends.get(descriptor)
            if end is None:
                continue
            try:
                data = end.connection.recv(LINE_BYTES_MAX)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                self._drop(descriptor)
                if end.host:
                    yield end.host, end.session
            elif not end.host and not self._introduced(end, data):
                self._drop(descriptor)
        if self.listener.fileno() in ready:
            self._accept()
        self._refuse_late()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            if sum(1 for end in self._ends.values() if not end.host) >= STRANGERS_MAX:
                connection.close()
                continue
            connection.setblocking(False)
            challenge = secrets.token_hex(16)
            try:
                connection.send(f"{challenge}\n".encode())
            except OSError:
                connection.close()
                continue
            self._ends[connection.fileno()] = _End(connection, time.monotonic(), challenge)
            self.wake.register(connection.fileno(), select.EPOLLIN)

    def _introduced(self, end: _End, data: bytes) -> bool:
        """Return whether a connection may stay, because it has identified itself or has not sent a whole line yet."""
        end.received += data
        line, newline, _ = end.received.partition(b"\n")
        if not newline:
            return len(end.received) < LINE_BYTES_MAX
        _, _, rest = line.decode(errors="replace").partition(" ")
        host, _, session = rest.partition(" ")
        wanted = introduction(end.challenge, self.secret_of(host), host, session)
        if not hmac.compare_digest(line + newline, wanted) or not host or not session:
            return False
        end.host, end.session = host, session
        return True

    def _refuse_late(self) -> None:
        late_s = time.monotonic() - INTRODUCTION_S
        for descriptor in [d for d, end in self._ends.items() if not end.host and end.since_s < late_s]:
            self._drop(descriptor)

    def _drop(self, descriptor: int) -> None:
        self._ends.pop(descriptor).connection.close()  # the kernel removes the descriptor from `wake`

    def close(self) -> None:
        for descriptor in list(self._ends):
            self._drop(descriptor)
        self.wake.close()
        self.listener.close()


def introduction(challenge: str, secret: str, host: str, session: str) -> bytes:
    """Return the line with which a host answers a connection's challenge."""
    proof = hmac.digest(secret.encode(), f"{challenge} {host} {session}".encode(), "sha256").hex()
    return f"{proof} {host} {session}\n".encode()


def tether(address: str, port: int, secret: str, host: str, session: str, within_s: float) -> socket.socket:
    """Connect a tether that lasts as long as the returned socket is open.

    Raises:
        OSError: the supervisor cannot be reached at this address, or does not send its challenge.
    """
    connection = socket.create_connection((address, port), within_s)
    try:
        challenge = b""
        while not challenge.endswith(b"\n"):
            received = connection.recv(LINE_BYTES_MAX - len(challenge))
            if not received:
                raise ConnectionError("the supervisor has ended the connection")
            challenge += received
        connection.sendall(introduction(challenge.decode(errors="replace").strip(), secret, host, session))
        connection.setblocking(False)
    except OSError:
        connection.close()
        raise
    return connection
