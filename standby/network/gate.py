"""The supervisor's side of the network: the socket at which agents join, their keys and their tethers.

Each accepted message comes from a host of the roster, under the name that belongs to the host's key. Without keys, the
socket is bound only to loopback, and the name in a message is trusted.  What hosts are sent of the versions of the job
is in the job directory.
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import zmq

from causal.commands import TERM
from causal.config import JobConfig
from causal.errors import PeerViolation, PipelineError
from causal.network.addresses import is_loopback as is_loopback
from causal.network.curve import Authenticator, serve_with, user_of
from causal.network.roster import KeyPair, Member, Roster, is_supervisor, mark_of, read_rosters
from causal.network.strangers import Strangers
from causal.records.values import encode
from standby.blueprint import FILE as GRAPH
from standby.network.control import MESSAGE_BYTES_MAX, pack, unpack
from standby.network.tether import Tethers
from standby.storage.change_files import NEXT
from standby.supervision import orders

SOCKET_QUEUE = 10_000
LINGER_MS = 300
EXECUTORS_ROSTER = "spark/agents.toml"
"""The file in a job directory with the public key of each agent in a Spark cluster, for the latest attempt."""

JOINING = "join-"
"""The identity prefix of a `causal agent` that asks for the job's description."""

_log = logging.getLogger("standby.gate")


def address_of(endpoint: str) -> tuple[str, int]:
    """Return the address and port in `tcp://ADDRESS:PORT`.

    Raises:
        PipelineError: the endpoint does not have this form.
    """
    try:
        parts = urlsplit(endpoint)
        if parts.scheme != "tcp" or not parts.hostname or parts.port is None or parts.path:
            raise ValueError("it has an unexpected form")
        return parts.hostname, parts.port
    except ValueError as problem:
        raise PipelineError(f"{endpoint} is not an address ({problem}); use tcp://ADDRESS:PORT") from None


def rosters_of(config: JobConfig, job: Path) -> list[Path]:
    """Return the files that together form a job's roster; empty if the job uses plain messages over loopback."""
    files = [Path(config.hosts)] if config.hosts else []
    return [*files, job / EXECUTORS_ROSTER] if config.on else files


def description_of(job: Path, config: JobConfig) -> dict[str, str]:
    """Return what a host needs to take part in the present version of the job."""
    graph = (job / GRAPH).read_text()
    return {"run": config.run, "name": config.name, "job": config.for_hosts(), "graph": graph}


def version_order(job: Path, config: JobConfig) -> orders.Version:
    """Return the order for a host that has joined an earlier version."""
    return orders.Version(config.for_hosts(), (job / GRAPH).read_text())


def start_order(job: Path, slot: str, role: str, mark: str) -> orders.Start:
    """Return the order to start a process.

    Args:
        mark: the mark of the present version.

    Raises:
        PipelineError: the settings of the next version are missing here, as the command that changes the job has ended
            or is on another machine.
    """
    settings = JobConfig.load(job / NEXT).for_hosts() if role == orders.NEXT_WORKER else ""
    return orders.Start(slot, role, mark, settings)


class Gate:
    """The sockets at which hosts join one supervisor.

    Args:
        description: the data that a host needs before it can join: run, settings and graph; None for a candidate, which
            only listens.
        rosters: the files that together form the roster.  They are read again whenever one of them changes, so that
            hosts can be added and revoked.
        term: the supervisor's leadership term, which each of its messages contains.

        Raises:
        PipelineError: the address cannot be bound, or would be open to the network without keys.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        listen: str,
        key: KeyPair | None,
        rosters: Sequence[Path],
        description: Mapping[str, Any] | None,
        term: int,
    ) -> None:
        address, _ = address_of(listen)
        if key is None and not is_loopback(address):
            raise PipelineError(
                f"--listen {listen} can be reached from the network; use --key and --hosts (create keys with "
                "`causal keys new`)"
            )
        self._key = key
        self._rosters = tuple(rosters)
        self._roster_versions: tuple[tuple[int, int], ...] = ()
        self.roster_text = self.roster_mark = ""
        """The roster as sent to hosts, and its mark; empty if keys are not used."""
        self.description = description
        self._term = term
        self.dropped = 0
        self.heard = 0
        """The number of messages from hosts of the roster, including hosts that only ask for the description."""
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
        ):
            self.socket.setsockopt(option, value)
        self.strangers = Strangers(context, self.socket) if key is not None else None
        if key is not None:
            serve_with(self.socket, key)
        try:
            self.socket.bind(listen.replace("localhost", "127.0.0.1"))
            self.tethers = Tethers(socket.gethostbyname(address))
        except (zmq.ZMQError, OSError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else str(problem)
            raise PipelineError(f"--listen {listen} cannot be bound: {reason}; use another address or port") from None

    def sockets(self) -> list[zmq.Socket[Any] | int]:
        """Return the sockets and descriptors to wait for."""
        own = [self.socket, self.authenticator.socket, self.tethers.wake.fileno()]
        return own if self.strangers is None else [*own, self.strangers.socket]

    @property
    def refused_connections(self) -> int:
        """The number of refused connections: handshakes with an unknown key, and connections that proved no key."""
        return self.authenticator.refused + (self.strangers.refused if self.strangers is not None else 0)

    def receive(self, most: int) -> Iterator[tuple[str, str, bytes]]:
        """Yield (host, slot, message) for each message that has arrived; the slot is empty for the agent itself."""
        if self.strangers is not None:
            self.strangers.serve()
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
            self.heard += host is not None
            if host is None:
                self.dropped += 1
            elif identity.startswith(JOINING):
                self._describe(parts[0], host, data)
            else:
                yield host, slot, data

    def _host(self, identity: str, user: str) -> str | None:
        """Return the host that sent a message; None if the identity does not match the key, or the key was revoked."""
        name = identity.removeprefix(JOINING).partition("/")[0]
        if self._key is None:
            return name
        known = name in self.authenticator.roster.members and not is_supervisor(name)
        return name if user == name and known else None

    def _describe(self, identity: bytes, host: str, data: bytes) -> None:
        if self.description is None:
            return
        try:
            message = unpack(data)
        except PeerViolation:
            self.dropped += 1
            return
        if message["kind"] != "describe":
            self.dropped += 1
            return
        reason = orders.reason_to_refuse(message.get("protocol"), orders.PROTOCOL)
        if reason is not None:
            reply = pack("refused", reason=reason)
        else:
            member = self.authenticator.roster.members.get(host) or Member(host, "")
            facts = {"slots": member.slots, "zone": member.zone, "labels": member.labels}
            tether = {"tether_port": self.tethers.port, "tether_secret": self.tethers.secret_of(host)}
            facts_now = {"member": facts, "roster": self.roster_text, "wall_ns": time.time_ns()}
            reply = pack("description", **self.description, **tether, **facts_now, term=self._term)
        self._send([identity, b"", reply])

    def send(self, host: str, slot: str, message: Mapping[str, Any]) -> bool:
        """Send a message to a process on a host, or to its agent if the slot is empty; return whether it could be
        sent.
        """
        return self._send([host.encode(), slot.encode(), encode({**message, TERM: self._term})])

    def order(self, host: str, message: Mapping[str, Any]) -> bool:
        """Send an order to a host's agent."""
        return self.send(host, "", message)

    def _send(self, parts: list[bytes]) -> bool:
        try:
            self.socket.send_multipart(parts, zmq.NOBLOCK)
        except zmq.ZMQError as problem:
            if problem.errno not in (errno.EHOSTUNREACH, zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return False
        return True

    def revoked(self) -> list[str]:
        """Read the roster again if one of its files has changed; return the hosts that it no longer contains."""
        before = set(self.authenticator.roster.members)
        self._read_roster()
        return sorted(before - set(self.authenticator.roster.members))

    def _read_roster(self) -> None:
        first = not self._roster_versions
        try:
            files = [path.stat() for path in self._rosters]
            versions = tuple((file.st_ino, file.st_mtime_ns) for file in files)
            if versions == self._roster_versions:
                return
            self._roster_versions = versions
            self.authenticator.roster, self.roster_text = read_rosters(self._rosters)
            self.roster_mark = mark_of(self.roster_text)
        except (OSError, PipelineError) as problem:
            if first:
                raise PipelineError(str(problem)) from None
            _log.warning("the roster is unchanged: %s", problem)

    def close(self) -> None:
        if self.strangers is not None:
            self.strangers.close()
        self.socket.close()
        self.authenticator.close()
        self.tethers.close()
