"""Control messages, which are MessagePack maps with a key `kind` and are converted to events of that kind.

A message that is malformed or too long is counted, logged once per sender and type of mistake, and dropped.  Unknown
kinds and keys are also logged, but the rest of the message is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec
import zmq

from causal.errors import PeerViolation
from causal.records.values import decode, encode
from causal.task.activity import PULSE_SUFFIX, Activity
from standby.supervision import events

MESSAGE_BYTES_MAX = 4 << 20
"""The length of the longest control message, enough for a snapshot of 10,000 files."""

COMPLAINTS_MAX = 200
"""The number of different complaints that are logged; later complaints are only counted."""

AGENT = "agent"
"""The identity of the local host's agent on the control socket."""

_log = logging.getLogger("standby.control")


def pack(kind: str, **keys: Any) -> bytes:
    """Encode one control message."""
    return encode({"kind": kind, **keys})


def unpack(data: bytes) -> dict[str, Any]:
    """Decode the map in a message that `pack` built.

    Raises:
        PeerViolation: the message is too long, or is not a map with a string under `kind`.
    """
    if len(data) > MESSAGE_BYTES_MAX:
        raise PeerViolation(f"a control message of {len(data)} bytes is too long")
    message = decode(data)
    if type(message) is not dict or type(message.get("kind")) is not str:
        raise PeerViolation("a control message is not a map with a kind")
    return message


FROM_WORKER: dict[str, type[events.FromProcess]] = {
    "beat": events.Beat,
    "phase": events.Phase,
    "snapshot": events.SnapshotReported,
    "finding": events.OrphanReport,
    "inspected": events.Replied,
    "failed": events.Failed,
}
"""Kind → event for messages from workers; the slot of the event is the sender."""

FROM_PULSE: dict[str, type[events.FromProcess]] = {"pulse": events.Pulse, "failed": events.Failed}
"""The same for messages from a worker's pulse thread, which sends while the worker's loop is busy."""

FROM_AGENT: dict[str, type[events.FromProcess]] = {
    "started": events.Started,
    "exited": events.Exited,
    "agent_beat": events.AgentBeat,
}

FROM_HOST: dict[str, type[events.FromHost]] = {
    **FROM_AGENT,
    "host_hello": events.HostHello,
    "host_log": events.HostLog,
}
"""The same for messages from the agent of another host, which is identified by its key."""

FROM_ADMIN: dict[str, type[events.FromProcess]] = {"admin": events.Admin}


_FIELDS: dict[type, frozenset[str]] = {
    event: frozenset(field.name for field in fields(event))
    for table in (FROM_WORKER, FROM_PULSE, FROM_HOST, FROM_ADMIN)
    for event in table.values()
}

LEAVING = "leaving"
"""The kind of an agent's last message, which reports that the agent ends its processes because the job has ended."""


def is_leaving(data: bytes) -> bool:
    """Return whether a message is the last message of an agent."""
    try:
        return bool(unpack(data)["kind"] == LEAVING)
    except PeerViolation:
        return False


def ask(runtime: str, verb: str, arguments: Mapping[str, Any], within_s: float) -> dict[str, Any] | None:
    """Send a request to the supervisor whose sockets are in `runtime`; None if it does not answer in time."""
    requester = Requester(runtime, f"admin-{os.getpid()}")
    try:
        return requester.ask(verb, arguments, within_s)
    finally:
        requester.close()


class Requester:
    """A client of the supervisor whose sockets are in the directory `runtime`.

    Args:
        identity: the name of the client's socket, which begins with `admin`.
    """

    def __init__(self, runtime: str, identity: str) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self._socket.setsockopt_string(zmq.IDENTITY, identity)
        self._socket.connect(f"ipc://{runtime}/supervisor")

    def ask(self, verb: str, arguments: Mapping[str, Any], within_s: float) -> dict[str, Any] | None:
        """Send a request and return the next answer, which may be that of an earlier request; None if there is none."""
        try:
            self._socket.send(pack("admin", verb=verb, arguments=dict(arguments)), zmq.NOBLOCK)
        except zmq.Again:  # the supervisor has been unavailable for many requests
            return None
        return unpack(self._socket.recv()) if self._socket.poll(int(within_s * 1000)) else None

    def close(self) -> None:
        self._socket.close()
        self._context.term()


class Inbox:
    """Converts the messages that arrive on the supervisor's socket to events."""

    def __init__(self) -> None:
        self.dropped = 0
        """The number of malformed messages."""
        self._complaints: set[tuple[str, str]] = set()

    def receive(self, sender: bytes, data: bytes) -> events.FromProcess | None:
        """Convert a message from this machine to an event; return None if the message is dropped."""
        try:
            name = sender.decode()
            table = FROM_ADMIN if name.startswith("admin") else FROM_AGENT if name == AGENT else FROM_WORKER
            event: events.FromProcess | None = self._event(name, table, unpack(data))
            return event
        except (PeerViolation, UnicodeDecodeError) as problem:
            self._drop(repr(sender), str(problem))
            return None

    def receive_from(self, host: str, slot: str, data: bytes, placed_on: str | None) -> events.FromHost | None:
        """Convert a message from the agent of another host to an event; return None if the message is dropped.

        Args:
            slot: the process for which the agent forwards the message; empty for a message from the agent itself.
            placed_on: the host on which the supervisor has placed that process; None if the supervisor does not know
                the process, in which case the message shows that the process still exists.
        """
        try:
            if not slot:
                event: events.FromHost | None = self._event(host, FROM_HOST, {**unpack(data), "host": host})
                return event
            if placed_on not in (None, host):
                raise PeerViolation(f"it sent a message for {slot:.40}, which is on another host")
            said: events.FromProcess | None = self._event(slot, FROM_WORKER, unpack(data))
            return said
        except PeerViolation as problem:
            self._drop(f"host {host}", str(problem))
            return None

    def _drop(self, sender: str, problem: str) -> None:
        self.dropped += 1
        self._complain(sender, problem)

    def _event(self, sender: str, table: Mapping[str, type[events.FromHost]], message: Mapping[str, Any]) -> Any:
        kind = message["kind"]
        if sender.endswith(PULSE_SUFFIX):
            sender, table = sender.removesuffix(PULSE_SUFFIX), FROM_PULSE
        event = table.get(kind)
        if event is None:
            self._complain(sender, f"unknown kind {kind!r:.40}")
            return None
        facts = {key: value for key, value in message.items() if key != "kind"}
        if table is FROM_ADMIN:
            facts = {"arguments": {}, **facts, "sender": sender}
        elif table is not FROM_AGENT and table is not FROM_HOST:
            if message.get("slot", sender) != sender:
                raise PeerViolation(f"{kind} of {sender} names the slot {message['slot']!r:.40}")
            facts["slot"] = sender
        if event is events.Beat or event is events.Failed:
            facts.setdefault("task", None)
        if facts.get("doing") is not None:
            facts["doing"] = Activity.read(facts["doing"])
        known = _FIELDS[event]
        for key in facts:
            if key not in known:
                self._complain(sender, f"{kind}: unknown key {key!r:.40}")
        try:
            return msgspec.convert(facts, event)
        except msgspec.ValidationError as problem:
            raise PeerViolation(f"{kind}: {problem}") from None

    def _complain(self, sender: str, problem: str) -> None:
        complaint = (sender, problem[:40])
        if complaint not in self._complaints and len(self._complaints) < COMPLAINTS_MAX:
            self._complaints.add(complaint)
            _log.warning("from %s: %s", sender, problem)
