"""Activities: long-running work in a process, such as a record, an external call, a store call or loading state.

A heartbeat proves that a process is alive; an `Activity` reports what it is working on (design page 0013).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs, to_builtins

from causal.errors import PeerViolation

PULSE_SUFFIX = ".pulse"
"""The suffix that turns a slot's name into the identity of the socket that reports while the slot's loop is busy."""

TEXT_MAX = 300
"""The maximum number of characters of each text."""

KINDS = ("start", "load", "event", "store", "work")
"""The kinds: importing the pipeline, loading state, running an operator, calling a sink's store, and runtime work."""


class Activity(Struct, frozen=True, omit_defaults=True):
    """One piece of work that has been under way for a while.

    Attributes:
        kind: one of `KINDS`.
        since_ns: the time at which the work began, on the host's monotonic clock.
        operator: the operator whose code is running; empty if there is none.
        key: the record's key as displayed; empty if there is none.
        record: the record being processed, as displayed and shortened; empty if there is none.
        at: the file and line of the innermost frame outside the runtime; empty if there is none.
        done: the number of bytes of state loaded so far.
        total: the size of the state in bytes.
    """

    kind: str
    since_ns: int
    operator: str = ""
    key: str = ""
    record: str = ""
    at: str = ""
    done: int = 0
    total: int = 0

    def message(self) -> dict[str, Any]:
        """Return the activity as part of a control message."""
        message: dict[str, Any] = to_builtins(self)
        return message

    @classmethod
    def read(cls, message: Any) -> Activity:
        """Return the activity that `message` describes.

        Raises:
            PeerViolation: `message` does not describe an activity.
        """
        if type(message) is not dict or message.get("kind") not in KINDS:
            raise PeerViolation(f"{message!r:.80} is not an activity")
        wanted = {each.name: each.type for each in structs.fields(cls)}
        for name, value in message.items():
            if name not in wanted or type(value) is not wanted[name]:
                raise PeerViolation(f"an activity has a field {name!r:.40} of type {type(value).__name__}")
            if isinstance(value, str) and len(value) > TEXT_MAX:
                raise PeerViolation(f"an activity has a {name} of {len(value)} characters")
        if "since_ns" not in message:
            raise PeerViolation("an activity has no start time")
        return cls(**message)


def sentence(activity: Activity, now_ns: int) -> str:
    """Return a readable description of an activity, for example "in 'slow' for 7.2 s, key 5, at counts.py:12"."""
    lasted = f"for {max(0, now_ns - activity.since_ns) / 1e9:.1f} s"
    kind = activity.kind
    if kind == "load":
        return f"loading its state {lasted} ({activity.done:,} of {activity.total:,} bytes)"
    if kind == "start":
        return f"loading the pipeline {lasted}{_at(activity)}"
    if kind == "store":
        return f"in a call to its store {lasted}{_at(activity)}"
    if kind == "work":
        return f"busy {lasted}{_at(activity)}"
    key = f", key {activity.key}" if activity.key else ""
    return f"in {activity.operator!r} {lasted}{key}{_at(activity)}"


def _at(activity: Activity) -> str:
    return f", at {activity.at}" if activity.at else ""
