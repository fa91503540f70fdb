"""The agent's connection to the supervisor, either on the same machine or, with a relay, on another one.

If the supervisor is on another machine, the agent acts as the supervisor towards the processes of this host.  They
connect to the agent over `ipc` as they would to the supervisor, and the agent forwards their messages and names over
its own connection.  A message that cannot be forwarded now is dropped, because the beats repeat everything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import zmq

from causal.commands import HighestTerm
from causal.errors import PeerViolation
from causal.network.curve import connect_with
from causal.network.host_file import read_term, save_term
from causal.network.roster import KeyPair
from causal.network.seats import Seat
from standby.network.control import AGENT, MESSAGE_BYTES_MAX, pack, unpack
from standby.supervision.orders import AnyOrder, read_order

SOCKET_QUEUE = 1000
LINGER_MS = 300
RELAY_MAX = 1000
"""The number of messages that are relayed in a row before the agent does anything else."""

CONNECT_MS = 1000
"""The time that a connection has to begin: the host of a supervisor may be cut off, and return at any moment."""

HEARTBEAT_MS = 1000
"""The interval between ZeroMQ's own heartbeats, which only renew a dead connection; the time-out is three times
this."""

_log = logging.getLogger("standby.agent")


class Uplink(Protocol):
    """The interface of the agent's connection to the supervisor."""

    sockets: list[zmq.Socket[Any]]

    def relay(self) -> None:
        """Forward the messages that other processes have sent."""

    def orders(self) -> Iterator[AnyOrder]:
        """Yield the orders that have arrived; malformed ones are logged and dropped."""

    def send(self, kind: str, **keys: Any) -> None:
        """Send a message from the agent itself if that is possible now."""

    def close(self) -> None:
        """Close the sockets."""


class LocalUplink:
    """The connection to a supervisor on this machine."""

    def __init__(self, context: zmq.Context[Any], runtime: str) -> None:
        self._socket = _dealer(context, AGENT)
        self._socket.connect(f"ipc://{runtime}/supervisor")
        self.sockets = [self._socket]

    def relay(self) -> None:
        """Do nothing, because processes on this machine send their messages directly to the supervisor."""

    def orders(self) -> Iterator[AnyOrder]:
        while True:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            order = _order(data)
            if order is not None:
                yield order

    def send(self, kind: str, **keys: Any) -> None:
        try:
            self._socket.send(pack(kind, **keys), zmq.NOBLOCK)
        except zmq.Again:
            return  # the queue is full, because no supervisor has answered for long; the next beat repeats the message

    def close(self) -> None:
        self._socket.close(0)  # `causal run` ends the supervisor before the agent, so no process would read the rest


class HostUplink:
    """The connection to a supervisor on another machine, and the relay for the processes of this host.

    Args:
        host: the name under which the host joins.
        supervisors: the supervisor and its successors.  The host sends messages to all of them, so that each candidate
            knows whether it hears hosts, but obeys only the one with the highest term.
        job: the job directory on this host.
        key: the host's key; None means plain messages, which are possible only over loopback.
    """

    def __init__(
        self, context: zmq.Context[Any], host: str, supervisors: Sequence[Seat], job: Path, key: KeyPair | None
    ) -> None:
        self._job = job
        self._terms = HighestTerm(read_term(job))
        self._ups = [_up(context, host, each, key) for each in supervisors]
        self._local = context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.LINGER, LINGER_MS),
            (zmq.ROUTER_HANDOVER, 1),
            (zmq.SNDHWM, SOCKET_QUEUE),
            (zmq.RCVHWM, SOCKET_QUEUE),
            (zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX),
        ):
            self._local.setsockopt(option, value)
        self._local.bind(f"ipc://{runtime_of(job)}/supervisor")
        self.sockets = [*self._ups, self._local]

    def relay(self) -> None:
        for _ in range(RELAY_MAX):
            try:
                parts = self._local.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(parts) == 2:
                self._forward(parts)

    def _forward(self, parts: list[bytes]) -> None:
        for up in self._ups:
            with suppress(zmq.Again):  # this supervisor cannot be reached; the next beat repeats the message
                up.send_multipart(parts, zmq.NOBLOCK)

    def orders(self) -> Iterator[AnyOrder]:
        """Yield the orders to the agent, and meanwhile forward commands to the processes of this host."""
        for up in self._ups:
            yield from self._orders_of(up)

    def _orders_of(self, up: zmq.Socket[Any]) -> Iterator[AnyOrder]:
        for _ in range(RELAY_MAX):
            try:
                parts = up.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(parts) != 2:
                _log.warning("from the supervisor: a message of %d parts", len(parts))
            elif not self._admits(parts[1]):
                continue
            elif parts[0]:
                self._local.send_multipart(parts, zmq.NOBLOCK)  # ZeroMQ drops messages to absent processes
            else:
                order = _order(parts[1])
                if order is not None:
                    yield order

    def _admits(self, data: bytes) -> bool:
        """Return whether a message belongs to the highest term so far; save a higher term before any of its orders
        is obeyed.
        """
        before, refused = self._terms.term, self._terms.refused
        try:
            admitted = self._terms.admits(unpack(data))
        except PeerViolation as problem:
            _log.warning("from the supervisor: %s", problem)
            return False
        if self._terms.term != before:
            save_term(self._job, self._terms.term)
            _log.info("the supervisor of term %d leads the job", self._terms.term)
        if not admitted and not refused:
            _log.warning("a supervisor of a term before %d still sends messages; they are ignored", self._terms.term)
        return admitted

    def send(self, kind: str, **keys: Any) -> None:
        self._forward([b"", pack(kind, **keys)])

    def close(self) -> None:
        """Close the sockets, leaving a moment to transmit messages that were just sent."""
        for up in self._ups:
            up.close()
        self._local.close()


def _up(context: zmq.Context[Any], host: str, supervisor: Seat, key: KeyPair | None) -> zmq.Socket[Any]:
    socket = _dealer(context, host)
    socket.setsockopt(zmq.IMMEDIATE, 1)  # messages are not queued for a supervisor that is not connected
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MS)
    if key is not None:
        connect_with(socket, key, supervisor.public)
    socket.connect(supervisor.endpoint)
    return socket


def _dealer(context: zmq.Context[Any], identity: str) -> zmq.Socket[Any]:
    socket: zmq.Socket[Any] = context.socket(zmq.DEALER)
    for option, value in (
        (zmq.LINGER, LINGER_MS),
        (zmq.SNDHWM, SOCKET_QUEUE),
        (zmq.RCVHWM, SOCKET_QUEUE),
        (zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX),
        (zmq.RECONNECT_IVL, 20),
        (zmq.RECONNECT_IVL_MAX, 200),
    ):
        socket.setsockopt(option, value)
    socket.setsockopt_string(zmq.IDENTITY, identity)
    return socket


def _order(data: bytes) -> AnyOrder | None:
    try:
        return read_order(unpack(data))
    except PeerViolation as problem:
        _log.warning("from the supervisor: %s", problem)
        return None


def runtime_of(job: Path) -> str:
    """Return the directory that contains a job's sockets on this machine."""
    return (job / "runtime").read_text().strip()
