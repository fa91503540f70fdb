"""Counts the epochs that standbys have repeated; `causal run --verify-replay` needs at least one for every task.

Each task that was checked is journaled, so the check still counts after the supervisor restarts or the job is resumed.
"""

from __future__ import annotations

from standby.supervision.assignments import Assignments, WorkerEntry
from standby.supervision.effects import Outbox, Record

FINISHED = (0, "")
"""The (status, reason) of a job that ended without being stopped."""
WAIT_NS_MAX = 60_000_000_000
"""The time for which the end is delayed for tasks without a repeated epoch."""


class Checks:
    """The checked epochs, by task.  The counts are level-triggered, because every beat of a standby contains its total.

    For the time before this supervisor started, only the fact that a task was checked is known.
    """

    def __init__(self, assignments: Assignments, enabled: bool) -> None:
        self.enabled = enabled
        self._assignments = assignments
        self._epochs_by_slot: dict[str, dict[str, int]] = {}
        """Task → slot of a living standby → the number of epochs that this standby has checked."""
        self._epochs_of_ended: dict[str, int] = {}
        self._once: set[str] = set()
        """The tasks for which at least one epoch was checked, according to the journal."""
        self._finished_ns: int | None = None

    def apply(self, record: Record) -> None:
        """Apply one decision; a decision that does not concern checks has no effect."""
        if record["kind"] == "checked":
            self._once.add(record["task"])
        elif record["kind"] == "gone":
            self._end(record["slot"])
        elif record["kind"] == "resumed":
            self._finished_ns = None
            for slot in [slot for epochs in self._epochs_by_slot.values() for slot in epochs]:
                self._end(slot)

    def _end(self, slot: str) -> None:
        """Add a standby's checks to the total for ended standbys, of which there may be many."""
        for task, epochs in self._epochs_by_slot.items():
            if slot in epochs:
                self._epochs_of_ended[task] = self._epochs_of_ended.get(task, 0) + epochs.pop(slot)

    def record_beat(self, slot: WorkerEntry, checked: tuple[int, str], outbox: Outbox) -> str:
        """Record the counts in a worker's beat; return the difference that the worker reports, or an empty string."""
        task = slot.task or slot.purpose
        if task and checked[0]:
            self._epochs_by_slot.setdefault(task, {})[slot.name] = checked[0]
            if task not in self._once:
                outbox.decide("checked", task=task)
        return checked[1]

    def epochs(self, task: str) -> int:
        """Return how many epochs of the task standbys have repeated."""
        count = self._epochs_of_ended.get(task, 0) + sum(self._epochs_by_slot.get(task, {}).values())
        return max(count, int(task in self._once))

    def lacking(self) -> list[str]:
        """Return the tasks for which no epoch has been checked."""
        return [name for name in self._assignments.tasks if not self.epochs(name)] if self.enabled else []

    def finished(self, now_ns: int) -> tuple[int, str] | None:
        """Return the (status, reason) of the end after all sinks have finished; None while the end must wait for a
        check.
        """
        lacking = self.lacking()
        if not lacking:
            return FINISHED
        if self._finished_ns is None:
            self._finished_ns = now_ns
        if now_ns - self._finished_ns < WAIT_NS_MAX:
            return None
        why = "see the logs of their processes, or no checkpoint completed while a standby followed them"
        return (1, f"no epoch of {', '.join(lacking)} could be checked: {why}; shorten --checkpoint-interval")

    def deadline_ns(self) -> int | None:
        """Return when the result of `finished` will change without an event; None if it will not."""
        return None if self._finished_ns is None else self._finished_ns + WAIT_NS_MAX
