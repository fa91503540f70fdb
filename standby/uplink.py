"""The agent's connection to the supervisor: on the same machine, or on another one, for which it also relays.

On another machine the agent takes the supervisor's place for the processes of its host: they connect to it over `ipc`
as they would to the supervisor, and it forwards their messages, with their names, over its own connection.  A message
that cannot be forwarded now is dropped: the beats repeat everything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import zmq

from causal.errors import PeerViolation
from causal.shell.curve import connect_with
from causal.shell.roster import SUPERVISOR, KeyPair, Roster
from standby.control import AGENT, MESSAGE_BYTES_MAX, pack, unpack
from standby.orders import AnyOrder, read_order

SOCKET_QUEUE = 1000
LINGER_MS = 300
RELAY_MAX = 1000
"""The number of messages relayed in a row before the agent looks at anything else."""

HEARTBEAT_MS = 1000
"""The interval and a third of the time-out of ZeroMQ's own heartbeats, which only renew a dead connection."""

_log = logging.getLogger("standby.agent")


class Uplink(Protocol):
    """A connection, as the agent uses it."""

    sockets: list[zmq.Socket[Any]]

    def relay(self) -> None:
        """Forwards what other processes have sent."""

    def orders(self) -> Iterator[AnyOrder]:
        """Yields the orders that have arrived; malformed ones are logged and dropped."""

    def send(self, kind: str, **keys: Any) -> None:
        """Sends a message of the agent's own, if that is possible now."""

    def close(self) -> None:
        """Closes the sockets, after what was just sent has had a moment to leave."""


class LocalUplink:
    """The connection to a supervisor on this machine."""

    def __init__(self, context: zmq.Context[Any], runtime: str) -> None:
        self._socket = _dealer(context, AGENT)
        self._socket.connect(f"ipc://{runtime}/supervisor")
        self.sockets = [self._socket]

    def relay(self) -> None:
        """Does nothing: processes of this machine speak to the supervisor themselves."""

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
            return  # no supervisor for a long while; the next beat repeats it

    def close(self) -> None:
        self._socket.close()


class HostUplink:
    """The connection to a supervisor on another machine, and the relay for the processes of this host.

    Args:
        host: the name under which the host joins.
        runtime: the directory of this host's sockets.
        key: the host's key; None speaks plainly, over loopback only.
    """

    def __init__(
        self, context: zmq.Context[Any], host: str, endpoint: str, runtime: str, key: KeyPair | None, roster: Roster
    ) -> None:
        self._up = _dealer(context, host)
        self._up.setsockopt(zmq.IMMEDIATE, 1)  # no queue for a supervisor that is not there
        self._up.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self._up.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)
        if key is not None:
            connect_with(self._up, key, roster.members[SUPERVISOR].public)
        self._up.connect(endpoint)
        self._local = context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.LINGER, LINGER_MS),
            (zmq.ROUTER_HANDOVER, 1),
            (zmq.SNDHWM, SOCKET_QUEUE),
            (zmq.RCVHWM, SOCKET_QUEUE),
            (zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX),
        ):
            self._local.setsockopt(option, value)
        self._local.bind(f"ipc://{runtime}/supervisor")
        self.sockets = [self._up, self._local]

    def relay(self) -> None:
        for _ in range(RELAY_MAX):
            try:
                parts = self._local.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(parts) == 2:
                self._forward(parts)

    def _forward(self, parts: list[bytes]) -> None:
        try:
            self._up.send_multipart(parts, zmq.NOBLOCK)
        except zmq.Again:
            return  # the supervisor cannot be reached; the next beat repeats it

    def orders(self) -> Iterator[AnyOrder]:
        """Yields the orders to the agent, and forwards the commands to its processes in between."""
        for _ in range(RELAY_MAX):
            try:
                parts = self._up.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(parts) != 2:
                _log.warning("from the supervisor: a message of %d parts", len(parts))
            elif parts[0]:
                self._local.send_multipart(parts, zmq.NOBLOCK)  # to a process that is not there: dropped
            else:
                order = _order(parts[1])
                if order is not None:
                    yield order

    def send(self, kind: str, **keys: Any) -> None:
        self._forward([b"", pack(kind, **keys)])

    def close(self) -> None:
        self._up.close()
        self._local.close()


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
    """The directory of the sockets of a job on this machine."""
    return (job / "runtime").read_text().strip()
