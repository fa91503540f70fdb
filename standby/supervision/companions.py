"""Processes that a source needs beside the dataflow: ordered until the agent has them; a failure ends the job."""

from __future__ import annotations

from collections.abc import Iterable

from standby.blueprint import CompanionCall
from standby.supervision import events
from standby.supervision.effects import Outbox, StartProcess

PREFIX = "companion-"

AGAIN_NS = 1_000_000_000
"""The time that the agent has to report a companion that it was asked to start."""


class Companions:
    """The companions of one job, by slot.  The agent restarts one that crashed by itself."""

    def __init__(self, calls: Iterable[CompanionCall]) -> None:
        self._calls = {PREFIX + call.name: call for call in calls}
        self._asked_ns: dict[str, int] = {}

    def __contains__(self, slot: str) -> bool:
        return slot in self._calls

    def settle(self, known: Iterable[str], now_ns: int, outbox: Outbox) -> None:
        """Orders the start of the companions that are not among the slots `known` of the agent."""
        missing = set(self._calls) - set(known)
        for slot in sorted(missing):
            asked_ns = self._asked_ns.get(slot, 0)
            if not asked_ns or now_ns - asked_ns >= AGAIN_NS:
                self._asked_ns[slot] = now_ns
                outbox.add(StartProcess(slot, f"companion:{self._calls[slot].name}"))

    def failure(self, event: events.Exited) -> str | None:
        """The reason for which the job must end with it; None if it has finished or is being restarted."""
        if event.restarting or event.status == 0:
            return None
        outcome = event.last_line or f"it exited with status {event.status}"
        return f"{self._calls[event.slot].name}: {outcome} (log: logs/{event.slot}.log)"
