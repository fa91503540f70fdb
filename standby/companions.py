"""Processes that a source needs beside the dataflow: asked for until the agent knows them, missed if they fail."""

from __future__ import annotations

from collections.abc import Iterable

from standby import events
from standby.blueprint import CompanionCall
from standby.effects import Outbox, StartProcess

PREFIX = "companion-"

AGAIN_NS = 1_000_000_000
"""How long the agent may take to know one that it was asked to start."""


class Companions:
    """The companions of one job, by slot.  The agent restarts one that crashed by itself."""

    def __init__(self, calls: Iterable[CompanionCall]) -> None:
        self._calls = {PREFIX + call.name: call for call in calls}
        self._asked_ns: dict[str, int] = {}

    def __contains__(self, slot: str) -> bool:
        return slot in self._calls

    def settle(self, known: Iterable[str], now_ns: int, outbox: Outbox) -> None:
        """Have those started that the agent, which knows the slots `known`, does not have."""
        missing = set(self._calls) - set(known)
        for slot in sorted(missing):
            asked_ns = self._asked_ns.get(slot, 0)
            if not asked_ns or now_ns - asked_ns >= AGAIN_NS:
                self._asked_ns[slot] = now_ns
                outbox.add(StartProcess(slot, f"companion:{self._calls[slot].name}"))

    def failure(self, event: events.Exited) -> str | None:
        """Why the job cannot go on without it; None if it is done, or is being restarted."""
        if event.restarting or event.status == 0:
            return None
        told = event.last_line or f"it exited with status {event.status}"
        return f"{self._calls[event.slot].name}: {told} (log: logs/{event.slot}.log)"
