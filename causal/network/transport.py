"""ZeroMQ as a transport: a ROUTER to which upstream neighbours connect, and one DEALER per downstream neighbour.

A multi-host job has a second ROUTER for neighbours on other hosts. Each neighbour is authenticated by the key of its
host, and the frames of a task are accepted only from the host on which the supervisor has placed the task.

A socket guarantees nothing: messages may be lost silently during a reconnect. Correctness therefore depends on
positions, credits and the in-flight log. No high-water mark may drop messages, because credits already limit the
queues, and sockets do not linger when they are closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import zmq

from causal.channels.wire import FRAME_BYTES_MAX, channel_of
from causal.errors import PipelineError
from causal.network.addresses import is_loopback
from causal.network.curve import Authenticator, connect_with, serve_with, user_of
from causal.network.roster import KeyPair, Roster
from causal.network.strangers import HANDSHAKE_MS, Strangers
from causal.process.open_files import raise_limit

RECEIVE_MAX = 64
"""The maximum number of frames read from one socket before the next socket is read."""
_HEARTBEAT_MS = 500
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)
"""The flags are plain integers, because an operation on enum members takes a microsecond."""


def _set_up(socket: zmq.Socket[bytes]) -> None:
    socket.linger = 0
    socket.sndhwm = 0
    socket.rcvhwm = 0
    socket.maxmsgsize = FRAME_BYTES_MAX
    socket.setsockopt(zmq.RECONNECT_IVL, 5)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT_MS)


REMOTE = b"\xff"
"""The first byte of a link to another host; a ROUTER's own identities begin with a zero byte instead."""

_log = logging.getLogger("causal.transport")


@dataclass(frozen=True, slots=True)
class Network:
    """The address, key and roster with which a process communicates with other hosts.

    Attributes:
        address: the address of this host, to which sockets are bound.
        key: the key of this host; None for loopback connections without keys.
        roster: a function that returns the roster of the hosts that may connect.
        source_of: a function that returns the task that sends on a channel.
    """

    address: str
    key: KeyPair | None
    roster: Callable[[], Roster]
    source_of: Callable[[int], int | None]


class Transport:
    """The data plane of one process; its `endpoint` is known before the process runs a task.

    Args:
        network: the network of a multi-host job, for which `remote` is the endpoint for tasks on other hosts.

    Raises:
        PipelineError: the address cannot be bound, or would be open to the network without a key.
    """

    def __init__(
        self, context: zmq.Context[Any], endpoint: str, poller: zmq.Poller, network: Network | None = None
    ) -> None:
        self._context = context
        self._poller = poller
        self._dealers: dict[int, zmq.Socket[bytes]] = {}
        self.undeliverable = 0
        self.refused = 0
        """The number of frames that arrived from a host other than that of the sending task."""
        self._strangers: Strangers | None = None
        self._router = self._bound(endpoint, None)
        self.endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self._network = network
        self._hosts: dict[int, str] = {}
        """Task on another host → that host, as reported by the supervisor."""
        self._undialled: dict[int, str] = {}
        """Task → its endpoint, if no connection is made because one of the two hosts' rosters lacks the other's key."""
        self._refusals: dict[int, tuple[zmq.Socket[Any], str]] = {}
        """Task on another host → the socket that reports a refusal of this host's key, and the endpoint."""
        self._refused_at: dict[int, str] = {}
        """Task → the last endpoint for which a refusal was logged."""
        self._authenticator: Authenticator | None = None
        self._remote: zmq.Socket[Any] | None = None
        self.remote = ""
        if network is not None:
            raise_limit()
            if network.key is not None:
                self._authenticator = Authenticator(context, network.roster())
                poller.register(self._authenticator.socket, zmq.POLLIN)
            self._remote = self._bound(f"tcp://{_bracketed(network.address)}:*", network.key)
            self.remote = self._remote.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")

    def _bound(self, endpoint: str, key: KeyPair | None) -> zmq.Socket[Any]:
        scheme, _, address = endpoint.rpartition(":")[0].partition("://")
        if key is None and scheme == "tcp" and not is_loopback(address.strip("[]")):
            raise PipelineError(
                f"{endpoint} can be reached from the network; use keys (create them with `causal keys new`)"
            )
        router: zmq.Socket[Any] = self._context.socket(zmq.ROUTER)
        _set_up(router)
        router.router_mandatory = True
        if key is not None:
            self._strangers = Strangers(self._context, router)
            self._poller.register(self._strangers.socket, zmq.POLLIN)
            serve_with(router, key)
        try:
            router.bind(endpoint)
        except zmq.ZMQError as problem:
            raise PipelineError(f"{endpoint} cannot be bound: {problem}; use another --address") from None
        self._poller.register(router, zmq.POLLIN)
        return router

    @property
    def refused_connections(self) -> int:
        """The number of connections from other hosts that were closed because they did not prove a key."""
        return self._strangers.refused if self._strangers is not None else 0

    def place(self, task: int, endpoint: str) -> None:
        """Record the host of a neighbour, so that the neighbour's frames are accepted only from that host."""
        host, at, _ = endpoint.partition("://")[2].rpartition("@")
        if at:
            self._hosts[task] = host
        else:
            self._hosts.pop(task, None)

    def dial(self, target: int, endpoint: str) -> None:
        """Connect to a downstream task; an older connection is closed, and the frames queued on it are dropped."""
        self._disconnect(target)
        self._undialled[target] = endpoint
        if not self._connect(target, endpoint):
            _log.warning("the host of task %d is not in the roster: no connection is made to it (%s)", target, endpoint)

    def _connect(self, target: int, endpoint: str) -> bool:
        """Connect to the task unless the roster lacks its host's key; return whether a connection was made."""
        scheme, _, rest = endpoint.partition("://")
        host, at, address = rest.rpartition("@") if scheme == "tcp" else ("", "", rest)
        network = self._network
        proves = network is not None and network.key is not None and bool(at)
        member = network.roster().members.get(host) if proves else None  # type: ignore[union-attr]
        if proves and member is None:
            return False
        socket = self._context.socket(zmq.DEALER)
        _set_up(socket)
        if member is not None:
            connect_with(socket, network.key, member.public)  # type: ignore[union-attr, arg-type]
            refusals = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
            self._refusals[target] = refusals, endpoint
            self._poller.register(refusals, zmq.POLLIN)
        socket.connect(f"{scheme}://{address}")
        self._dealers[target] = socket
        self._poller.register(socket, zmq.POLLIN)
        del self._undialled[target]
        return True

    def _disconnect(self, target: int) -> None:
        self._undialled.pop(target, None)
        for socket in (self._dealers.pop(target, None), self._refusals.pop(target, (None, ""))[0]):
            if socket is not None:
                self._poller.unregister(socket)
                socket.close(0)

    def _take_refusals(self, ready: dict[zmq.Socket[bytes], int]) -> None:
        """Close connections that refused this host's key: ZeroMQ gives up on them, so the next frame reconnects."""
        for target, (socket, endpoint) in list(self._refusals.items()):
            if socket in ready:
                if self._refused_at.get(target) != endpoint:
                    self._refused_at[target] = endpoint
                    _log.warning("the host of task %d refuses the key of this host (%s)", target, endpoint)
                self._disconnect(target)
                self._undialled[target] = endpoint

    def send(self, target: int, parts: list[bytes]) -> None:
        """Send a frame if possible; the protocol copes with frames that do not arrive."""
        endpoint = self._undialled.get(target) if self._undialled else None
        # The key of the host may have returned to the roster before the supervisor noticed its absence.
        if endpoint is not None:
            self._connect(target, endpoint)
        socket = self._dealers.get(target)
        if socket is None:
            self.undeliverable += 1
            return
        try:
            _send(socket, parts)
        except zmq.Again:
            self.undeliverable += 1

    def reply(self, link: bytes, parts: list[bytes]) -> None:
        router, identity = self._router, link
        if self._remote is not None and link.startswith(REMOTE):
            router, identity = self._remote, link[len(REMOTE) :]
        try:
            _send(router, [identity, *parts])
        except zmq.ZMQError as problem:
            if problem.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.undeliverable += 1

    def receive(self, ready: dict[zmq.Socket[bytes], int]) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield (link, parts) of each frame that has arrived; the link is empty for answers from downstream."""
        if self._refusals:
            self._take_refusals(ready)
        for socket in list(self._dealers.values()):
            if socket in ready:
                for parts in _take(socket):
                    yield b"", parts
        if self._router in ready:
            for parts in _take(self._router):
                yield parts[0], parts[1:]
        if self._remote is not None:
            yield from self._receive_remote(self._remote, ready)

    def _receive_remote(
        self, remote: zmq.Socket[Any], ready: dict[zmq.Socket[bytes], int]
    ) -> Iterator[tuple[bytes, list[bytes]]]:
        if self._authenticator is not None and self._authenticator.socket in ready:
            self._authenticator.roster = self._network.roster()  # type: ignore[union-attr]
            self._authenticator.serve()
        if self._strangers is not None and self._strangers.socket in ready:
            self._strangers.serve()
        if remote not in ready:
            return
        for _ in range(RECEIVE_MAX):
            try:
                identity = remote.recv(_NOBLOCK, copy=False)
            except zmq.Again:
                return
            _, *parts = _message(remote, identity)
            if self._heard(user_of(identity), parts):
                yield REMOTE + identity.bytes, parts
            else:
                self.refused += 1
            if not _has_more(remote):
                return

    def _heard(self, host: str, parts: list[bytes]) -> bool:
        """Return whether the frame comes from the host of the task that sends on the frame's channel."""
        network = self._network
        if network is None or network.key is None or not parts:
            return True
        channel = channel_of(parts[0])
        source = network.source_of(channel) if channel is not None else None
        return source is not None and self._hosts.get(source) == host

    def close(self) -> None:
        if self._strangers is not None:
            self._poller.unregister(self._strangers.socket)
            self._strangers.close()
        routers = (self._router,) if self._remote is None else (self._router, self._remote)
        for target in list(self._dealers):
            self._disconnect(target)
        for socket in routers:
            self._poller.unregister(socket)
            socket.close(0)
        if self._authenticator is not None:
            self._poller.unregister(self._authenticator.socket)
            self._authenticator.close()


def _take(socket: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    for _ in range(RECEIVE_MAX):
        try:
            first = socket.recv(_NOBLOCK, copy=False)
        except zmq.Again:
            return
        yield _message(socket, first)
        if not _has_more(socket):
            return


# `send_multipart` and `recv_multipart` do additional work, and raise an exception when no message is left. Their
# overhead is as large as the cost of a small message, so this module does not use them.


def _send(socket: zmq.Socket[bytes], parts: list[bytes]) -> None:
    for part in parts[:-1]:
        socket.send(part, _MORE)
    socket.send(parts[-1], _NOBLOCK)


def _message(socket: zmq.Socket[bytes], frame: zmq.Frame) -> list[bytes]:
    """Return all parts of the message that begins with this frame."""
    parts = [frame.bytes]
    while frame.more:
        frame = socket.recv(copy=False)
        parts.append(frame.bytes)
    return parts


def _has_more(socket: zmq.Socket[bytes]) -> bool:
    """Return whether another message has arrived."""
    return bool(cast(int, socket.get(_EVENTS)) & _POLLIN)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
