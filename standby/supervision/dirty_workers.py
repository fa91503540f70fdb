"""Tracks the processes that the supervisor must examine after an event, so that a step costs only what it changes.

Examining every process is always correct, and is done periodically.  Examining only the processes that have changed, or
whose neighbours have changed, has the same result sooner and costs nothing for unaffected tasks.
"""

from __future__ import annotations

from standby.supervision.assignments import Assignments, TaskEntry, WorkerEntry
from standby.supervision.effects import Record

SWEEP_NS = 500_000_000
"""The interval at which every process is examined, so that a command without visible effect is sent again."""

_OF_ONE = frozenset(("process", "phase", "first_record", "injected", "killing", "resumed_at", "checked"))
"""Decisions that require no action on other processes."""


class DirtyWorkers:
    """The processes to examine next.

    Attributes:
        everything: whether all processes are to be examined.
    """

    def __init__(self, assignments: Assignments) -> None:
        self.everything = True
        self._assignments = assignments
        self._some = False
        self._looking = self._again = False
        self._slots: dict[str, None] = {}
        self._swept_ns = 0

    def all(self) -> None:
        """Mark every process, because a change may concern all of them."""
        self.everything = True

    def slot(self, slot: WorkerEntry) -> None:
        """Mark one process, because a fact about it has changed."""
        self._slots[slot.name] = None

    def whereabouts(self, slot: WorkerEntry) -> None:
        """Mark a process whose address has changed, as well as its neighbours, which need the new address."""
        self._slots[slot.name] = None
        entry = self._assignments.entry_of(slot)
        if entry is not None:
            self._neighbours(entry)

    def _neighbours(self, entry: TaskEntry) -> None:
        for name in entry.neighbours:
            holder = self._assignments.tasks[name].slot
            if holder:
                self._slots[holder] = None

    def apply(self, record: Record) -> None:
        """Mark the processes that a decision concerns, after it has been applied to the assignments."""
        kind = record["kind"]
        if kind in _OF_ONE:
            self._some = True
        elif kind == "promoted":
            self._slots[record["slot"]] = None
            self._neighbours(self._assignments.tasks[record["task"]])
        elif kind == "gone":
            self._some = True
            if record["task"]:
                self._neighbours(self._assignments.tasks[record["task"]])
                self._slots.update(dict.fromkeys(self._assignments.unserved.get(record["task"], ())))
        else:
            self.everything, self._again = True, self._looking

    def due(self, now_ns: int) -> bool:
        """Return whether any process must be examined now."""
        if not (self.everything or self._some or self._slots):
            if now_ns < self.deadline_ns():
                return False
            self.everything = True
        if self.everything:
            self._swept_ns = now_ns
        self._looking = True
        return True

    def deadline_ns(self) -> int:
        """Return when every process will next be examined, regardless of events."""
        return self._swept_ns + SWEEP_NS

    def slots(self) -> list[WorkerEntry]:
        """Return the processes to examine, longest-serving first."""
        slots = self._assignments.slots
        if self.everything:
            return list(slots.values())
        return [slots[name] for name in sorted(self._slots, key=_number) if name in slots]

    def clear(self) -> None:
        """Remove the marks after an examination.  If a decision during it concerned all processes, mark them all
        again.
        """
        self.everything, self._again = self._again, False
        self._some = self._looking = False
        self._slots.clear()


def _number(name: str) -> tuple[int, str]:
    """Return a sort key that orders slot names by number, which is the order in which the slots were started."""
    return len(name), name
