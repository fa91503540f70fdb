"""What a process works on at the moment, where that takes long: one record, a call, a store, the loading of a state.

A heartbeat proves that a process lives; an `Activity` tells how far its work has come (design page 0013).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from causal.errors import PeerViolation

PULSE_SUFFIX = ".pulse"
"""Behind a slot's name: the identity of the socket that tells of it while its loop is busy."""

TEXT_MAX = 300
"""Characters of each text."""

KINDS = ("start", "load", "event", "store", "work")
"""Importing the pipeline; loading a state; in an operator; in a call of a sink's store; other work of the runtime."""


@dataclass(frozen=True, slots=True)
class Activity:
    """One piece of work that has been under way for a while.

    Attributes:
        kind: one of `KINDS`.
        since_ns: monotonic time of its host.
        operator: whose code runs; empty where none does.
        key: of the record, as it is shown; empty without one.
        record: that is worked on, as it is shown and shortened; empty without one.
        at: file and line of the innermost frame that is not the runtime's; empty where there is none.
        done: bytes of the state that are loaded.
        total: bytes of the state.
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
        """The activity as a part of a control message."""
        return {name: value for name, value in asdict(self).items() if value or name in ("kind", "since_ns")}

    @classmethod
    def read(cls, told: Any) -> Activity:
        """The activity that `message` gave.

        Raises:
            PeerViolation: it is something else.
        """
        if type(told) is not dict or told.get("kind") not in KINDS:
            raise PeerViolation(f"{told!r:.80} is no activity")
        wanted = {each.name: str if each.type == "str" else int for each in fields(cls)}
        for name, value in told.items():
            if name not in wanted or type(value) is not wanted[name]:
                raise PeerViolation(f"an activity with {name!r:.40} of type {type(value).__name__}")
            if isinstance(value, str) and len(value) > TEXT_MAX:
                raise PeerViolation(f"an activity with a {name} of {len(value)} characters")
        if "since_ns" not in told:
            raise PeerViolation("an activity without its beginning")
        return cls(**told)


def sentence(told: Mapping[str, Any], now_ns: int) -> str:
    """An activity as a person reads it, for example "in 'slow' for 7.2 s, key 5, at counts.py:12".

    Args:
        told: what `Activity.message` gave.
    """
    lasted = f"for {max(0, now_ns - told['since_ns']) / 1e9:.1f} s"
    kind = told["kind"]
    if kind == "load":
        return f"loading its state {lasted} ({told.get('done', 0):,} of {told.get('total', 0):,} bytes)"
    if kind == "start":
        return f"loading the pipeline {lasted}{_at(told)}"
    if kind == "store":
        return f"in a call of its store {lasted}{_at(told)}"
    if kind == "work":
        return f"busy {lasted}{_at(told)}"
    key = f", key {told['key']}" if told.get("key") else ""
    return f"in {told.get('operator', '')!r} {lasted}{key}{_at(told)}"


def _at(told: Mapping[str, Any]) -> str:
    return f", at {told['at']}" if told.get("at") else ""
