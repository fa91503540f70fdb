"""Detects processes that exist but are silent.

The agent notices exits immediately; this is only for processes that are stopped, or whose interpreter's lock is held by
C code.  Such a process has a longer limit where the agent sees that it computes.  Long work is no suspicion, because a
busy process sends pulses.  Silence counts only while the supervisor itself was listening: after the supervisor was
stopped or starved, the silence of every process counts from then.
"""

from __future__ import annotations

from standby.supervision.assignments import Assignments, WorkerEntry, WorkerState

START_NS_MAX = 60_000_000_000
"""A process that has sent nothing for this long after its start counts as hung: it beats before it loads the
pipeline.
"""


class Detector:
    """Watches the beats and pulses of all slots."""

    def __init__(self, suspect_after_ns: int, stuck_after_ns: int = 0) -> None:
        """
        Args:
            suspect_after_ns: silence that counts as a hang.
            stuck_after_ns: silence that does, of a process that uses the processor; at least the other one.
        """
        self._suspect_after_ns = suspect_after_ns
        self._stuck_after_ns = max(stuck_after_ns, suspect_after_ns)
        self._observed_ns = 0
        self._amnesty_ns = 0
        self._look_ns = 0
        """No process can expire before this moment: beats and new processes only move expiries later."""

    def observe(self, now_ns: int) -> None:
        """Record that the supervisor is awake at this moment; must be called before each look."""
        if now_ns - self._observed_ns > self._suspect_after_ns // 2:
            self._amnesty_ns = now_ns
        self._observed_ns = now_ns

    def excuse(self, until_ns: int) -> None:
        """Count silence from that time on: no process could be heard before."""
        self._amnesty_ns = max(self._amnesty_ns, until_ns)

    @property
    def listening_since_ns(self) -> int:
        """The moment from which the supervisor has been awake, and not cut off, without a gap."""
        return self._amnesty_ns

    def suspects(self, assignments: Assignments, now_ns: int) -> list[WorkerEntry]:
        """Return slots that count as hung now."""
        if now_ns < self._look_ns:
            return []
        self._look_ns = now_ns + self._suspect_after_ns
        hung = []
        for slot in assignments.slots.values():
            at = self._expires_ns(slot)
            if at is not None:
                self._look_ns = min(self._look_ns, at)
                if now_ns >= at:
                    hung.append(slot)
        return hung

    def deadline_ns(self) -> int:
        """Return the moment of the next look, early enough that a longer gap means that the supervisor was not
        running.
        """
        return min(self._observed_ns + self._suspect_after_ns // 4, self._look_ns)

    def _expires_ns(self, slot: WorkerEntry) -> int | None:
        if slot.state in (WorkerState.LEAVING, WorkerState.GONE):
            return None
        if not slot.alive_ns and not slot.task:
            return max(slot.known_ns, self._amnesty_ns) + START_NS_MAX
        # A process that has a task has beaten before, if only for the supervisor before this one.
        heard_ns = max(slot.alive_ns or slot.known_ns, self._amnesty_ns)
        busy_ns = max(heard_ns, slot.computed_ns)
        return min(busy_ns + self._suspect_after_ns, heard_ns + self._stuck_after_ns)
