"""Detects processes that exist but are silent.

The agent notices exits immediately; this module detects only processes that are stopped, or in which C code holds the
interpreter's lock.  The limit is longer for a process that uses the processor according to the agent.  Long work is not
suspicious, because a busy process sends pulses.  Silence counts only while the supervisor itself was listening: after
the supervisor was stopped or starved, the silence of every process is measured from its return.
"""

from __future__ import annotations

from standby.supervision.assignments import Assignments, WorkerEntry, WorkerState

START_NS_MAX = 60_000_000_000
"""The silence after its start for which a process counts as hung: it beats before it loads the pipeline."""


class Detector:
    """Watches the beats and pulses of all slots."""

    def __init__(self, suspect_after_ns: int, stuck_after_ns: int = 0) -> None:
        """
        Args:
            suspect_after_ns: the silence that counts as a hang.
            stuck_after_ns: the silence that counts as a hang of a process that uses the processor; at least
                `suspect_after_ns`.
        """
        self._suspect_after_ns = suspect_after_ns
        self._stuck_after_ns = max(stuck_after_ns, suspect_after_ns)
        self._observed_ns = 0
        self._amnesty_ns = 0
        self._look_ns = 0
        """No process can expire before this time: beats and new processes can only postpone expiries."""

    def observe(self, now_ns: int) -> None:
        """Record that the supervisor is awake at this time; must be called before each check for suspects."""
        if now_ns - self._observed_ns > self._suspect_after_ns // 2:
            self._amnesty_ns = now_ns
        self._observed_ns = now_ns

    def excuse(self, until_ns: int) -> None:
        """Count silence only from `until_ns` on, because no process could be heard earlier."""
        self._amnesty_ns = max(self._amnesty_ns, until_ns)

    @property
    def listening_since_ns(self) -> int:
        """The time since which the supervisor has been awake and connected without a gap."""
        return self._amnesty_ns

    def suspects(self, assignments: Assignments, now_ns: int) -> list[WorkerEntry]:
        """Return the slots that count as hung now."""
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
        """Return the time of the next check; it is so early that a longer gap proves that the supervisor was not
        running.
        """
        return min(self._observed_ns + self._suspect_after_ns // 4, self._look_ns)

    def _expires_ns(self, slot: WorkerEntry) -> int | None:
        if slot.state in (WorkerState.LEAVING, WorkerState.GONE):
            return None
        if not slot.alive_ns and not slot.task:
            return max(slot.known_ns, self._amnesty_ns) + START_NS_MAX
        # A process with a task has beaten before, even if only to an earlier supervisor.
        heard_ns = max(slot.alive_ns or slot.known_ns, self._amnesty_ns)
        busy_ns = max(heard_ns, slot.computed_ns)
        return min(busy_ns + self._suspect_after_ns, heard_ns + self._stuck_after_ns)
