"""Counts the epochs that standbys have performed again: `causal run --verify-replay` needs one of every task.

That a task was checked is journaled, so it still counts after a restart of the supervisor and after a resume.
"""

from __future__ import annotations

from standby.supervision.assignments import Assignments, WorkerEntry
from standby.supervision.effects import Outbox, Record

FINISHED = (0, "")
"""(status, reason) of a job that ended without being stopped."""
WAIT_NS_MAX = 60_000_000_000
"""The time that the end is held back for tasks of which no epoch has been performed again."""


class Checks:
    """The epochs that were checked, by task; level-triggered, because every beat of a standby has the total.

    Of what was counted before this supervisor's life began, only that there was an epoch is known.
    """

    def __init__(self, assignments: Assignments, enabled: bool) -> None:
        self.enabled = enabled
        self._assignments = assignments
        self._epochs_by_slot: dict[str, dict[str, int]] = {}
        """Task → slot of a standby that lives → epochs."""
        self._epochs_of_ended: dict[str, int] = {}
        self._once: set[str] = set()
        """The tasks of which an epoch was checked, according to the journal."""
        self._finished_ns: int | None = None

    def apply(self, record: Record) -> None:
        """Apply one decision; kinds that do not concern checks change nothing."""
        if record["kind"] == "checked":
            self._once.add(record["task"])
        elif record["kind"] == "gone":
            self._end(record["slot"])
        elif record["kind"] == "resumed":
            self._finished_ns = None
            for slot in [slot for epochs in self._epochs_by_slot.values() for slot in epochs]:
                self._end(slot)

    def _end(self, slot: str) -> None:
        """Add a standby's checks to those of the ended standbys, of which there may be many."""
        for task, epochs in self._epochs_by_slot.items():
            if slot in epochs:
                self._epochs_of_ended[task] = self._epochs_of_ended.get(task, 0) + epochs.pop(slot)

    def record_beat(self, slot: WorkerEntry, checked: tuple[int, str], outbox: Outbox) -> str:
        """Compare the counts in a worker's beat, and return the difference; empty if there is none."""
        task = slot.task or slot.purpose
        if task and checked[0]:
            self._epochs_by_slot.setdefault(task, {})[slot.name] = checked[0]
            if task not in self._once:
                outbox.decide("checked", task=task)
        return checked[1]

    def epochs(self, task: str) -> int:
        """Return the number of epochs of the task that any standby has performed again."""
        count = self._epochs_of_ended.get(task, 0) + sum(self._epochs_by_slot.get(task, {}).values())
        return max(count, int(task in self._once))

    def lacking(self) -> list[str]:
        """Return tasks of which nothing has been checked."""
        return [name for name in self._assignments.tasks if not self.epochs(name)] if self.enabled else []

    def finished(self, now_ns: int) -> tuple[int, str] | None:
        """(status, reason) of the end after all sinks have finished; None while it must wait for a check."""
        lacking = self.lacking()
        if not lacking:
            return FINISHED
        if self._finished_ns is None:
            self._finished_ns = now_ns
        if now_ns - self._finished_ns < WAIT_NS_MAX:
            return None
        why = "their processes' logs say why, or no checkpoint came while a standby followed them"
        return (1, f"no epoch of {', '.join(lacking)} could be checked: {why}; shorten --checkpoint-interval")

    def deadline_ns(self) -> int | None:
        """Return the moment at which the answer of `finished` changes without an event; None for never."""
        return None if self._finished_ns is None else self._finished_ns + WAIT_NS_MAX
