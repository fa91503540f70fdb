"""Activities: long work of a process, such as one record, a call, a store or loading a state.

A heartbeat proves that a process lives; an `Activity` reports how far its work has come (design page 0013).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs, to_builtins

from causal.errors import PeerViolation

PULSE_SUFFIX = ".pulse"
"""The suffix that makes a slot's name the identity of the socket that reports on it while its loop is busy."""

TEXT_MAX = 300
"""The most characters of each text."""

KINDS = ("start", "load", "event", "store", "work")
"""The kinds: importing the pipeline, loading a state, an operator, a call of a sink's store, work of the runtime."""


class Activity(Struct, frozen=True, omit_defaults=True):
    """One piece of work that has been under way for a while.

    Attributes:
        kind: one of `KINDS`.
        since_ns: monotonic time of its host.
        operator: the operator whose code runs; empty if none does.
        key: the key of the record, as it is shown; empty without one.
        record: the record that is worked on, as it is shown and shortened; empty without one.
        at: the file and line of the innermost frame that is not the runtime's; empty if there is none.
        done: the bytes of the state that are loaded.
        total: the bytes of the state.
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
        """Return the activity as a part of a control message."""
        message: dict[str, Any] = to_builtins(self)
        return message

    @classmethod
    def read(cls, message: Any) -> Activity:
        """Return the activity that `message` describes.

        Raises:
            PeerViolation: it is something else.
        """
        if type(message) is not dict or message.get("kind") not in KINDS:
            raise PeerViolation(f"{message!r:.80} is no activity")
        wanted = {each.name: each.type for each in structs.fields(cls)}
        for name, value in message.items():
            if name not in wanted or type(value) is not wanted[name]:
                raise PeerViolation(f"an activity with {name!r:.40} of type {type(value).__name__}")
            if isinstance(value, str) and len(value) > TEXT_MAX:
                raise PeerViolation(f"an activity with a {name} of {len(value)} characters")
        if "since_ns" not in message:
            raise PeerViolation("an activity without its beginning")
        return cls(**message)


def sentence(activity: Activity, now_ns: int) -> str:
    """Return an activity as a person reads it, for example "in 'slow' for 7.2 s, key 5, at counts.py:12"."""
    lasted = f"for {max(0, now_ns - activity.since_ns) / 1e9:.1f} s"
    kind = activity.kind
    if kind == "load":
        return f"loading its state {lasted} ({activity.done:,} of {activity.total:,} bytes)"
    if kind == "start":
        return f"loading the pipeline {lasted}{_at(activity)}"
    if kind == "store":
        return f"in a call of its store {lasted}{_at(activity)}"
    if kind == "work":
        return f"busy {lasted}{_at(activity)}"
    key = f", key {activity.key}" if activity.key else ""
    return f"in {activity.operator!r} {lasted}{key}{_at(activity)}"


def _at(activity: Activity) -> str:
    return f", at {activity.at}" if activity.at else ""
