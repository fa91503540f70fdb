"""Counts the epochs that standbys have repeated: `causal run --verify-replay` needs at least one for every task.

The fact that a task was checked is journaled, so it still counts after a restart of the supervisor and after a resume.
"""

from __future__ import annotations

from standby.supervision.assignments import Assignments, WorkerEntry
from standby.supervision.effects import Outbox, Record

FINISHED = (0, "")
"""(status, reason) of a job that ended without being stopped."""
WAIT_NS_MAX = 60_000_000_000
"""The time for which the end is delayed for tasks without a repeated epoch."""


class Checks:
    """The epochs that were checked, by task; level-triggered, because every beat of a standby contains the total.

    For checks before this supervisor started, only the fact that an epoch was checked is known.
    """

    def __init__(self, assignments: Assignments, enabled: bool) -> None:
        self.enabled = enabled
        self._assignments = assignments
        self._epochs_by_slot: dict[str, dict[str, int]] = {}
        """Task → slot of a living standby → number of epochs."""
        self._epochs_of_ended: dict[str, int] = {}
        self._once: set[str] = set()
        """The tasks for which an epoch was checked, according to the journal."""
        self._finished_ns: int | None = None

    def apply(self, record: Record) -> None:
        """Apply one decision; decisions that do not concern checks change nothing."""
        if record["kind"] == "checked":
            self._once.add(record["task"])
        elif record["kind"] == "gone":
            self._end(record["slot"])
        elif record["kind"] == "resumed":
            self._finished_ns = None
            for slot in [slot for epochs in self._epochs_by_slot.values() for slot in epochs]:
                self._end(slot)

    def _end(self, slot: str) -> None:
        """Add a standby's checks to the sum for ended standbys, of which there may be many."""
        for task, epochs in self._epochs_by_slot.items():
            if slot in epochs:
                self._epochs_of_ended[task] = self._epochs_of_ended.get(task, 0) + epochs.pop(slot)

    def record_beat(self, slot: WorkerEntry, checked: tuple[int, str], outbox: Outbox) -> str:
        """Record the counts in a worker's beat; return the difference that the worker has reported, or an empty
        string.
        """
        task = slot.task or slot.purpose
        if task and checked[0]:
            self._epochs_by_slot.setdefault(task, {})[slot.name] = checked[0]
            if task not in self._once:
                outbox.decide("checked", task=task)
        return checked[1]

    def epochs(self, task: str) -> int:
        """Return the number of epochs of the task that standbys have repeated."""
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
        """Return the time at which the result of `finished` changes without an event; None if it does not."""
        return None if self._finished_ns is None else self._finished_ns + WAIT_NS_MAX
