"""Companions: processes that a source needs in addition to the dataflow.  If one fails, the job ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from standby.blueprint import CompanionCall
from standby.supervision import events
from standby.supervision.effects import Outbox, StartProcess

PREFIX = "companion-"

AGAIN_NS = 1_000_000_000
"""The time that the agent has to report a companion that it was asked to start."""


class Companions:
    """The companions of one job, by slot.  The agent restarts a crashed companion without an order."""

    def __init__(self, calls: Iterable[CompanionCall]) -> None:
        self._calls = {PREFIX + call.name: call for call in calls}
        self._asked_ns: dict[str, int] = {}
        self._hosts: dict[str, str] = {}
        """Companion → the host on which it runs, or on which its start was ordered."""
        self._running: set[str] = set()

    def __contains__(self, slot: str) -> bool:
        return slot in self._calls

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def lacking(self) -> bool:
        """Whether any companion has not been reported by an agent."""
        return len(self._running) < len(self._calls)

    def record_beat(self, host: str, known: Iterable[str]) -> None:
        """Record which processes, living or ended, the agent of a host knows."""
        known = set(known)
        for slot in self._calls:
            if slot in known:
                self._hosts[slot] = host
                self._running.add(slot)
            elif self._hosts.get(slot) == host:
                self._running.discard(slot)

    def lose(self, host: str) -> None:
        """Forget the companions of a lost host, so that they are placed on other hosts."""
        for slot in [slot for slot, at in self._hosts.items() if at == host]:
            del self._hosts[slot]
            self._running.discard(slot)
            self._asked_ns.pop(slot, None)

    def settle(self, host_for: Callable[[str], str | None], now_ns: int, outbox: Outbox) -> None:
        """Order the start of every companion that no agent knows."""
        for slot in sorted(set(self._calls) - self._running):
            asked_ns = self._asked_ns.get(slot, 0)
            if asked_ns and now_ns - asked_ns < AGAIN_NS:
                continue
            host = self._hosts.get(slot)
            host = host_for(slot) if host is None else host
            if host is not None:
                self._hosts[slot] = host
                self._asked_ns[slot] = now_ns
                outbox.add(StartProcess(slot, f"companion:{self._calls[slot].name}", host))

    def failure(self, event: events.Exited) -> str | None:
        """Return the reason why the end of a companion ends the job; None if it finished or is being restarted."""
        if event.restarting or event.status == 0:
            return None
        outcome = event.last_line or f"it exited with status {event.status}"
        return f"{self._calls[event.slot].name}: {outcome} (log: logs/{event.slot}.log)"
