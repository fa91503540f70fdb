"""Counts the epochs that standbys have performed again: `causal run --verify-replay` needs one of every task."""

from __future__ import annotations

from standby.supervision.assignments import Assignments, WorkerEntry

FINISHED = (0, "")
"""(status, reason) of a job that came to its end by itself."""
WAIT_NS_MAX = 60_000_000_000
"""The time that the end is held back for tasks of which no epoch has been performed again."""


class Checks:
    """The epochs that were checked, by task; level-triggered, because every beat of a standby has the total."""

    def __init__(self, assignments: Assignments, enabled: bool) -> None:
        self.enabled = enabled
        self._assignments = assignments
        self._epochs_by_slot: dict[str, dict[str, int]] = {}
        self._finished_ns: int | None = None

    def record_beat(self, slot: WorkerEntry, checked: tuple[int, str]) -> str:
        """Takes the counts from a worker's beat and returns the difference that it found; empty if none."""
        task = slot.task or slot.purpose
        if task and checked[0]:
            self._epochs_by_slot.setdefault(task, {})[slot.name] = checked[0]
        return checked[1]

    def epochs(self, task: str) -> int:
        """The number of epochs of the task that any standby has performed again."""
        return sum(self._epochs_by_slot.get(task, {}).values())

    def lacking(self) -> list[str]:
        """Tasks of which nothing has been checked."""
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
        return (1, f"no epoch of {', '.join(lacking)} could be checked; their processes' logs say why")

    def deadline_ns(self) -> int | None:
        """The moment at which the answer of `finished` changes without an event; None for never."""
        return None if self._finished_ns is None else self._finished_ns + WAIT_NS_MAX
