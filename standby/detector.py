"""Suspicion: a process that exists but has fallen silent.

Exits are noticed by the agent at once; this is only for hangs.  Silence counts only while the
supervisor itself was listening: after it was stopped or starved, everybody starts with a clean slate.
"""

from __future__ import annotations

from standby.roster import Roster, Slot, SlotState

START_NS_MAX = 60_000_000_000
"""A process that has not beaten once after this long will not."""


class Detector:
    """Watches the beats of all slots."""

    def __init__(self, suspect_after_ns: int) -> None:
        self._suspect_after_ns = suspect_after_ns
        self._observed_ns = 0
        self._amnesty_ns = 0
        self._look_ns = 0
        """Nobody can expire before this: beats and new processes only move expiries further away."""

    def observe(self, now_ns: int) -> None:
        """The supervisor is awake at this moment; must be called before each look."""
        if now_ns - self._observed_ns > self._suspect_after_ns // 2:
            self._amnesty_ns = now_ns
        self._observed_ns = now_ns

    def suspects(self, roster: Roster, now_ns: int) -> list[Slot]:
        """Slots that count as hung now."""
        if now_ns < self._look_ns:
            return []
        self._look_ns = now_ns + self._suspect_after_ns
        hung = []
        for slot in roster.slots.values():
            at = self._expires_ns(slot)
            if at is not None:
                self._look_ns = min(self._look_ns, at)
                if now_ns >= at:
                    hung.append(slot)
        return hung

    def deadline_ns(self) -> int:
        """When to look again; often enough that a longer gap means that we were not running."""
        return min(self._observed_ns + self._suspect_after_ns // 4, self._look_ns)

    def _expires_ns(self, slot: Slot) -> int | None:
        if slot.state in (SlotState.LEAVING, SlotState.GONE):
            return None
        if slot.seen_ns:
            return max(slot.seen_ns, self._amnesty_ns) + self._suspect_after_ns
        # A process that has a task has beaten before, if only for the supervisor before this one.
        return max(slot.known_ns, self._amnesty_ns) + (self._suspect_after_ns if slot.task else START_NS_MAX)
