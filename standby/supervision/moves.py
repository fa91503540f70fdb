"""The move of a task to another host: its process is killed when a standby on that host can be promoted.

A task's output is therefore interrupted only for the duration of one promotion, and only one task moves at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from standby.supervision.assignments import Assignments, WorkerEntry, WorkerState
from standby.supervision.checkpoints import Coordinator
from standby.supervision.effects import Outbox
from standby.supervision.recoveries import Timeline

Kill = Callable[[WorkerEntry, str, int, Outbox], None]

REQUESTED = "on request"
"""The reason for a kill that does not count as a failure of the task."""


class Moves:
    """Decides when a task may move.

    Args:
        kill: a function that kills a process and journals the reason.
    """

    def __init__(self, assignments: Assignments, coordinator: Coordinator, timeline: Timeline, kill: Kill) -> None:
        self._assignments = assignments
        self._coordinator = coordinator
        self._timeline = timeline
        self._kill = kill

    def possible(self, now_ns: int) -> bool:
        """Return whether a task may move now: every task has a process, none is recovering, and none is moving."""
        if self._coordinator.writing or not self._assignments.confirmed or self._assignments.waiting_count:
            return False
        holders = (self._assignments.holder(entry) for entry in self._assignments.tasks.values())
        leaving = any(holder is not None and holder.state is WorkerState.LEAVING for holder in holders)
        return not leaving and not self._timeline.busy(now_ns)

    def loaded(self, standby: WorkerEntry) -> bool:
        """Return whether a standby has loaded the latest checkpoint or needs no state."""
        return not standby.purpose or not self._coordinator.complete or standby.followed == self._coordinator.complete

    def kill(self, slot: WorkerEntry, now_ns: int, outbox: Outbox) -> None:
        """Kill a process; this does not count as a failure."""
        self._kill(slot, REQUESTED, now_ns, outbox)
