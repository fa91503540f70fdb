"""Detection of processes that exist but are silent.

The agent notices exits immediately.  This module detects only processes that are stopped, or in which C code holds the
interpreter lock.  The limit is longer for a process that uses the processor according to the agent.  Long work is not
suspicious, because a busy process sends pulses.  Silence counts only while the supervisor itself was listening.  If the
supervisor was stopped or starved, the silence of every process is measured from the time it resumed.
"""

from __future__ import annotations

from standby.supervision.assignments import Assignments, WorkerEntry, WorkerState

START_NS_MAX = 60_000_000_000
"""The silence after which a process that was just started counts as hung: it beats before it loads the pipeline."""


class Detector:
    """Detects hung processes from the beats and pulses of all slots."""

    def __init__(self, suspect_after_ns: int, stuck_after_ns: int = 0) -> None:
        """
        Args:
            suspect_after_ns: the silence after which a process counts as hung.
            stuck_after_ns: the silence after which a process that uses the processor counts as hung; at least
                `suspect_after_ns`.
        """
        self._suspect_after_ns = suspect_after_ns
        self._stuck_after_ns = max(stuck_after_ns, suspect_after_ns)
        self._observed_ns = 0
        self._amnesty_ns = 0
        self._look_ns = 0
        """No process can expire before this time, because beats and new processes only postpone expiries."""

    def observe(self, now_ns: int) -> None:
        """Record that the supervisor is awake at this time.  Call this before each check for suspects."""
        if now_ns - self._observed_ns > self._suspect_after_ns // 2:
            self._amnesty_ns = now_ns
        self._observed_ns = now_ns

    def excuse(self, until_ns: int) -> None:
        """Count silence only from `until_ns` on, because no process could be heard before."""
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
        """Return the time of the next check, which is early enough that a longer gap proves that the supervisor did
        not run.
        """
        return min(self._observed_ns + self._suspect_after_ns // 4, self._look_ns)

    def _expires_ns(self, slot: WorkerEntry) -> int | None:
        if slot.state in (WorkerState.LEAVING, WorkerState.GONE):
            return None
        if not slot.alive_ns and not slot.task:
            return max(slot.known_ns, self._amnesty_ns) + START_NS_MAX
        # A process with a task has sent a beat before, even if only to an earlier supervisor.
        heard_ns = max(slot.alive_ns or slot.known_ns, self._amnesty_ns)
        busy_ns = max(heard_ns, slot.computed_ns)
        return min(busy_ns + self._suspect_after_ns, heard_ns + self._stuck_after_ns)
