"""Tracks staged rows: which epochs are visible, and whether only a checkpoint delays the end of the job.

With guarantee `epoch`, both facts follow from the beats alone, so a restarted supervisor knows them immediately.
"""

from __future__ import annotations

from dataclasses import dataclass

from standby.supervision.assignments import Assignments, WorkerEntry, WorkerState
from standby.supervision.checkpoints import Coordinator

STAGED, FINISHED = "staged", "finished"


@dataclass(frozen=True, slots=True)
class Staging:
    """The sinks of one job; `enabled` is set if their rows are staged."""

    assignments: Assignments
    coordinator: Coordinator
    enabled: bool

    def hurries(self) -> bool:
        """Return whether the next checkpoint should begin immediately, because all inputs have ended and rows wait
        for it.

        If a sink reports this before it has acted on the last complete checkpoint, that checkpoint may already include
        its rows.
        """
        slots = self._sinks() if self.enabled else []
        waits = [slot.committed >= self.coordinator.complete for slot in slots if slot.reported_state == STAGED]
        return bool(waits) and all(waits) and all(slot.reported_state in (STAGED, FINISHED) for slot in slots)

    def shown(self, epoch: int) -> bool:
        """Return whether all rows of the epochs below the complete epoch `epoch` are visible."""
        return not self.enabled or all(slot.committed >= epoch for slot in self._sinks())

    def _sinks(self) -> list[WorkerEntry]:
        """Return the processes of all sink tasks, with an unnamed placeholder entry for each task without a process."""
        workers = []
        for entry in self.assignments.tasks.values():
            if entry.sink:
                slot = self.assignments.holder(entry)
                serving = slot is not None and slot.state is WorkerState.SERVING and slot.seen_ns
                workers.append(slot if slot is not None and serving else WorkerEntry("", "", committed=-1))
        return workers
