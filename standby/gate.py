"""The supervisor's side of the network: the socket at which agents join, their keys, their tethers.

A message here is of a host of the roster, under the name that belongs to its key.  Without keys the socket is bound
to loopback alone, and a host is who it says it is.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import zmq

from causal.errors import PeerViolation, PipelineError
from causal.records.values import encode
from causal.shell.curve import Authenticator, serve_with, user_of
from causal.shell.roster import KeyPair, Member, Roster
from standby.control import MESSAGE_BYTES_MAX, pack, unpack
from standby.tether import Tethers

PROTOCOL = 1
"""The version of what agents and supervisors say to each other."""

PROTOCOLS = (PROTOCOL,)
"""The versions of agents that may join: this one and the one before it, so that hosts are upgraded one by one."""

SOCKET_QUEUE = 10_000
LINGER_MS = 300
JOINING = "join-"
"""The beginning of the identity of a `causal agent` that asks for the description of the job."""

_log = logging.getLogger("standby.gate")


def address_of(endpoint: str) -> tuple[str, int]:
    """The address and port in `tcp://ADDRESS:PORT`.

    Raises:
        PipelineError: it is no such endpoint.
    """
    try:
        parts = urlsplit(endpoint)
        if parts.scheme != "tcp" or not parts.hostname or parts.port is None or parts.path:
            raise ValueError("it has another form")
        return parts.hostname, parts.port
    except ValueError as problem:
        raise PipelineError(f"{endpoint} is no address ({problem}); give tcp://ADDRESS:PORT") from None


def is_loopback(address: str) -> bool:
    """Whether only processes of this machine can reach an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


class Gate:
    """The sockets at which hosts join one supervisor.

    Args:
        description: what a host needs before it can join: run, settings and graph.
        roster_path: where the roster is; it is read again when it changes, so that hosts can be added and revoked.

    Raises:
        PipelineError: the address cannot be bound, or would be open to the network without keys.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        listen: str,
        key: KeyPair | None,
        roster_path: Path | None,
        description: Mapping[str, Any],
    ) -> None:
        address, _ = address_of(listen)
        if key is None and not is_loopback(address):
            raise PipelineError(
                f"--listen {listen} is open to the network; give --key and --hosts (make keys with `causal keys new`)"
            )
        self._key = key
        self._roster_path = roster_path
        self._roster_mtime_ns = 0
        self._description = description
        self.dropped = 0
        self.authenticator = Authenticator(context, Roster({}))
        self._read_roster()
        self.socket = context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.LINGER, LINGER_MS),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.ROUTER_HANDOVER, 1),
            (zmq.SNDHWM, SOCKET_QUEUE),
            (zmq.RCVHWM, SOCKET_QUEUE),
            (zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX),
            (zmq.HANDSHAKE_IVL, 5000),
        ):
            self.socket.setsockopt(option, value)
        if key is not None:
            serve_with(self.socket, key)
        try:
            self.socket.bind(listen.replace("localhost", "127.0.0.1"))
            self.tethers = Tethers(socket.gethostbyname(address))
        except (zmq.ZMQError, OSError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else str(problem)
            raise PipelineError(f"--listen {listen} cannot be bound: {reason}; give another address or port") from None

    def sockets(self) -> list[zmq.Socket[Any] | int]:
        """Everything to wait for, besides the tethers' descriptors."""
        return [self.socket, self.authenticator.socket]

    def receive(self, most: int) -> Iterator[tuple[str, str, bytes]]:
        """Yields (host, slot, message) of what has arrived; the slot is empty for the agent itself."""
        for _ in range(most):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            parts = [frame.bytes for frame in frames]
            try:
                identity, (slot, data) = parts[0].decode(), (parts[1].decode(), parts[2])
                if len(parts) != 3:
                    raise ValueError("too many parts")
            except (ValueError, IndexError):
                self.dropped += 1
                continue
            host = self._host(identity, user_of(frames[0]))
            if host is None:
                self.dropped += 1
            elif identity.startswith(JOINING):
                self._describe(parts[0], host, data)
            else:
                yield host, slot, data

    def _host(self, identity: str, user: str) -> str | None:
        """The host that a message is from; None if its identity is not that of its key, or its key was revoked."""
        name = identity.removeprefix(JOINING).partition("/")[0]
        if self._key is None:
            return name
        return name if user == name and name in self.authenticator.roster.members else None

    def _describe(self, identity: bytes, host: str, data: bytes) -> None:
        try:
            message = unpack(data)
        except PeerViolation:
            self.dropped += 1
            return
        version = message.get("protocol")
        if message["kind"] != "describe" or version not in PROTOCOLS:
            wanted = " or ".join(map(str, PROTOCOLS))
            reason = f"it speaks version {version!r:.20} of the protocol of hosts, the supervisor {wanted}; upgrade it"
            reply = pack("refused", reason=reason)
        else:
            member = self.authenticator.roster.members.get(host) or Member(host, "")
            facts = {"slots": member.slots, "zone": member.zone, "labels": member.labels}
            tether = {"tether_port": self.tethers.port, "tether_secret": self.tethers.secret}
            reply = pack("description", **self._description, **tether, member=facts, roster=self._roster_text)
        self._send([identity, b"", reply])

    def send(self, host: str, slot: str, data: bytes) -> bool:
        """Sends a message to a process of a host, or with an empty slot to its agent; returns whether it could."""
        return self._send([host.encode(), slot.encode(), data])

    def order(self, host: str, message: Mapping[str, Any]) -> bool:
        """Sends an order to the agent of a host."""
        return self.send(host, "", encode(dict(message)))

    def _send(self, parts: list[bytes]) -> bool:
        try:
            self.socket.send_multipart(parts, zmq.NOBLOCK)
        except zmq.ZMQError as problem:
            if problem.errno not in (errno.EHOSTUNREACH, zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return False
        return True

    def roster_changed(self) -> tuple[str, list[str]] | None:
        """Reads the roster again if its file has changed; returns its text and the hosts that are revoked by it."""
        before = set(self.authenticator.roster.members)
        if not self._read_roster():
            return None
        return self._roster_text, sorted(before - set(self.authenticator.roster.members))

    def _read_roster(self) -> bool:
        if self._roster_path is None:
            self._roster_text = ""
            return False
        try:
            mtime_ns = self._roster_path.stat().st_mtime_ns
            if mtime_ns == self._roster_mtime_ns:
                return False
            self.authenticator.roster = Roster.load(self._roster_path)
            self._roster_text = self._roster_path.read_text()
        except (OSError, PipelineError) as problem:
            if not self._roster_mtime_ns:
                raise PipelineError(str(problem)) from None
            _log.warning("the roster stays as it was: %s", problem)
            mtime_ns = self._roster_mtime_ns if isinstance(problem, OSError) else mtime_ns
        changed = self._roster_mtime_ns not in (0, mtime_ns)
        self._roster_mtime_ns = mtime_ns
        return changed

    def close(self) -> None:
        self.socket.close()
        self.authenticator.close()
        self.tethers.close()
