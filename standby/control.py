"""Control messages: MessagePack maps with a key `kind`, checked before they are used.

A message that is malformed or too long is counted, logged once per sender and kind of mistake, and
dropped.  Unknown kinds and keys are logged likewise, but the rest of the message is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import zmq

from causal.errors import PeerViolation
from causal.logs.rollback import Extent, OrphanAnswer
from causal.records.values import decode, encode
from causal.task.activity import PULSE_SUFFIX, Activity
from standby.supervision import events
from standby.supervision.effects import Files
from standby.supervision.task_counters import reason_invalid

MESSAGE_BYTES_MAX = 4 << 20
"""Longest control message; a snapshot of 10,000 files fits."""

FILES_MAX = 10_000
EXTENTS_MAX = 100_000
COMPLAINTS_MAX = 200
"""Different complaints logged; later ones are only counted."""

AGENT = "agent"
"""Identity of the host's agent on the control socket."""

_log = logging.getLogger("standby.control")


def pack(kind: str, **keys: Any) -> bytes:
    """One control message."""
    return encode({"kind": kind, **keys})


def unpack(data: bytes) -> dict[str, Any]:
    """Returns the map that `pack` made.

    Raises:
        PeerViolation: too long, or not a map with a text under `kind`.
    """
    if len(data) > MESSAGE_BYTES_MAX:
        raise PeerViolation(f"a control message of {len(data)} bytes is too long")
    message = decode(data)
    if type(message) is not dict or type(message.get("kind")) is not str:
        raise PeerViolation("a control message is not a map with a kind")
    return message


def as_files(value: Any) -> Files:
    """Checks a list of [path, size, digest] whose paths stay below the job's `checkpoints`, and returns it as tuples.

    Raises:
        PeerViolation: it is anything else.
    """
    if not isinstance(value, (list, tuple)) or len(value) > FILES_MAX:
        raise PeerViolation("files are not a list, or too many")
    files: list[tuple[str, int, str]] = []
    for item in value:
        if not isinstance(item, (list, tuple)) or [type(part) for part in item] != [str, int, str]:
            raise PeerViolation("a file is not [path, size, digest]")
        path, size, digest = item
        parts = path.split("/")
        if parts[0] != "checkpoints" or ".." in parts or len(parts) < 2 or size < 0 or "\0" in path:
            raise PeerViolation(f"{path!r} is no file of a checkpoint")
        files.append((path, size, digest))
    return tuple(files)


def _acked(value: Any) -> tuple[int, Files]:
    if not isinstance(value, (list, tuple)) or len(value) != 2 or type(value[0]) is not int:
        raise PeerViolation("acked is not (epoch, files)")
    return value[0], as_files(value[1])


def _extents(value: Any) -> tuple[Extent, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > EXTENTS_MAX:
        raise PeerViolation("extents are not a list, or too many")
    extents: list[Extent] = []
    for item in value:
        if not isinstance(item, (list, tuple)) or [type(part) for part in item] != [int] * 3 or min(item) < 0:
            raise PeerViolation("an extent is not [task, epoch, bytes]")
        extents.append((item[0], item[1], item[2]))
    return tuple(extents)


def _finding(value: Any) -> OrphanAnswer:
    if type(value) is not dict or set(value) != {"settled", "orphan", "stands"} or type(value["settled"]) is not bool:
        raise PeerViolation("a finding with other fields")
    orphan = value["orphan"]
    return OrphanAnswer(value["settled"], None if orphan is None else _extents([orphan])[0], _extents(value["stands"]))


def _counters(value: Any) -> dict[str, Any]:
    problem = "counters are not a map" if type(value) is not dict else reason_invalid(value)
    if problem is not None:
        raise PeerViolation(problem)
    return dict(value)


def _no(value: Any, wanted: str) -> PeerViolation:
    """The error for a value of a wrong type; it has no value, because one nested a thousand levels cannot be shown."""
    return PeerViolation(f"a {type(value).__name__} where a {wanted} belongs")


def _of(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise _no(value, kind.__name__)
        return value

    return check


def _map_of(kind: type, empty: bool = False) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not dict or not all(type(key) is str for key in value):
            raise _no(value, "map with names")
        if not all(type(item) is kind or (empty and item is None) for item in value.values()):
            raise _no(value, f"map of {kind.__name__}")
        return value

    return check


def _any_map(value: Any) -> Any:
    if type(value) is not dict:
        raise _no(value, "map")
    return value


def _checked(value: Any) -> tuple[int, str]:
    if type(value) is not list or [type(each) for each in value] != [int, str]:
        raise PeerViolation(f"{value!r:.80} is not [epochs, problem]")
    return value[0], value[1]


def _names(value: Any) -> tuple[str, ...]:
    if type(value) is not list or not all(type(each) is str for each in value):
        raise _no(value, "list of names")
    return tuple(value)


def _waiting(value: Any) -> tuple[int, str]:
    if type(value) is not list or [type(each) for each in value] != [int, str]:
        raise PeerViolation(f"{value!r:.80} is not [since, reason]")
    return value[0], value[1]


_TEXT, _NUMBER, _FLAG = _of(str), _of(int), _of(bool)

_Spec = tuple[type, dict[str, Callable[[Any], Any]], dict[str, Callable[[Any], Any]]]

FROM_WORKER: dict[str, _Spec] = {
    "beat": (
        events.Beat,
        {"pid": _NUMBER, "endpoint": _TEXT, "incarnation": _NUMBER, "state": _TEXT, "epoch": _NUMBER},
        {
            "task": _TEXT,
            "acked": _acked,
            "followed": _NUMBER,
            "counters": _counters,
            "first_record_ns": _NUMBER,
            "last_output_ns": _NUMBER,
            "rollback": _NUMBER,
            "lost": _extents,
            "peers": _map_of(int),
            "committed": _NUMBER,
            "checked": _checked,
            "waiting": _waiting,
            "doing": Activity.read,
            "wanted_epoch": _NUMBER,
        },
    ),
    "phase": (
        events.Phase,
        {"task": _TEXT, "incarnation": _NUMBER, "phase": _TEXT, "at_ns": _NUMBER},
        {"detail": _NUMBER},
    ),
    "snapshot": (
        events.Snapshot,
        {"task": _TEXT, "incarnation": _NUMBER, "epoch": _NUMBER, "files": as_files},
        {},
    ),
    "finding": (
        events.OrphanReport,
        {"task": _TEXT, "incarnation": _NUMBER, "number": _NUMBER, "finding": _finding},
        {},
    ),
    "inspected": (events.Replied, {"to": _TEXT, "facts": _any_map}, {}),
    "failed": (
        events.Failed,
        {"incarnation": _NUMBER, "error": _TEXT, "message": _TEXT, "definite": _FLAG},
        {"task": _TEXT},
    ),
}
"""kind → (event, keys that must be there, keys that may be there or None); the slot is the sender."""

FROM_PULSE: dict[str, _Spec] = {
    "pulse": (
        events.Pulse,
        {"pid": _NUMBER},
        {"endpoint": _TEXT, "state": _TEXT, "doing": Activity.read, "waiting": _waiting},
    ),
    "failed": FROM_WORKER["failed"],
}
"""The same for messages from the pulse thread of a worker, which sends while its loop is busy."""

FROM_AGENT: dict[str, _Spec] = {
    "started": (events.Started, {"slot": _TEXT, "pid": _NUMBER, "at_ns": _NUMBER}, {}),
    "exited": (
        events.Exited,
        {"slot": _TEXT, "pid": _NUMBER, "at_ns": _NUMBER},
        {"status": _NUMBER, "killed_ns": _NUMBER, "last_line": _TEXT, "restarting": _FLAG},
    ),
    "agent_beat": (
        events.AgentBeat,
        {"slots": _map_of(int), "dead": _map_of(int, empty=True)},
        {"killed": _map_of(int), "computing": _names},
    ),
}

FROM_ADMIN: dict[str, _Spec] = {"admin": (events.Admin, {"verb": _TEXT}, {"arguments": _any_map})}


def ask(runtime: str, verb: str, arguments: Mapping[str, Any], within_s: float) -> dict[str, Any] | None:
    """Sends a request to the supervisor whose sockets are in `runtime`; None if it does not answer in time."""
    context = zmq.Context()
    client = context.socket(zmq.DEALER)
    try:
        client.setsockopt(zmq.LINGER, 0)
        client.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        client.setsockopt_string(zmq.IDENTITY, f"admin-{os.getpid()}")
        client.connect(f"ipc://{runtime}/supervisor")
        client.send(pack("admin", verb=verb, arguments=dict(arguments)))
        return unpack(client.recv()) if client.poll(int(within_s * 1000)) else None
    finally:
        client.close()
        context.term()


class Inbox:
    """Turns messages on the supervisor's socket into events."""

    def __init__(self) -> None:
        self.dropped = 0
        """The number of malformed messages."""
        self._complaints: set[tuple[str, str]] = set()

    def receive(self, sender: bytes, data: bytes) -> events.FromProcess | None:
        """The event in a message; None if the message is dropped."""
        try:
            name = sender.decode()
            return self._event(name, unpack(data))
        except (PeerViolation, UnicodeDecodeError) as problem:
            self.dropped += 1
            self._complain(repr(sender), str(problem))
            return None

    def _event(self, sender: str, message: Mapping[str, Any]) -> events.FromProcess | None:
        kind = message["kind"]
        table = FROM_ADMIN if sender.startswith("admin") else FROM_AGENT if sender == AGENT else FROM_WORKER
        if sender.endswith(PULSE_SUFFIX):
            sender, table = sender.removesuffix(PULSE_SUFFIX), FROM_PULSE
        spec = table.get(kind)
        if spec is None:
            self._complain(sender, f"unknown kind {kind!r:.40}")
            return None
        make, required, optional = spec
        if table is FROM_ADMIN:
            arguments: dict[str, Any] = {"sender": sender, "arguments": {}}
        elif table is FROM_WORKER or table is FROM_PULSE:
            arguments = {"slot": sender}
            if kind == "beat":
                arguments["task"] = None
            if message.get("slot", sender) != sender:
                raise PeerViolation(f"{kind} of {sender} names the slot {message['slot']!r:.40}")
        else:
            arguments = {}
        if kind == "failed":
            arguments["task"] = None
        for key, value in message.items():
            if key in required:
                arguments[key] = required[key](value)
            elif key in optional:
                if value is not None:
                    arguments[key] = optional[key](value)
            elif key not in ("kind", "slot"):
                self._complain(sender, f"{kind}: unknown key {key!r:.40}")
        missing = [key for key in required if key not in arguments]
        if missing:
            raise PeerViolation(f"{kind} lacks {', '.join(missing)}")
        event: events.FromProcess = make(**arguments)
        return event

    def _complain(self, sender: str, problem: str) -> None:
        complaint = (sender, problem[:40])
        if complaint not in self._complaints and len(self._complaints) < COMPLAINTS_MAX:
            self._complaints.add(complaint)
            _log.warning("from %s: %s", sender, problem)
