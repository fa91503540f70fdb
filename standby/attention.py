"""Which processes an event may have given the supervisor something to do about, so that a step costs what it changes.

Looking at everybody is always right, and is what happens when time has passed; looking at those whose own facts or
neighbours have changed finds the same at once, without a cost for each task that has nothing to do with it.
"""

from __future__ import annotations

from standby.effects import Record
from standby.roster import Roster, Seat, Slot

SWEEP_NS = 500_000_000
"""How often everybody is looked at: what was told and did not show is told again."""

_OF_ONE = frozenset(("process", "phase", "first_record", "injected", "killing", "resumed_at"))
"""Decisions that give nobody else anything to do."""


class Attention:
    """Collects between two looks.

    Attributes:
        everybody: all processes are to be looked at.
    """

    def __init__(self, roster: Roster) -> None:
        self.everybody = True
        self._roster = roster
        self._some = False
        self._looking = self._again = False
        self._slots: dict[str, None] = {}
        self._swept_ns = 0

    def all(self) -> None:
        """Something changed that may concern everybody."""
        self.everybody = True

    def slot(self, slot: Slot) -> None:
        """Something changed about this one process."""
        self._slots[slot.name] = None

    def whereabouts(self, slot: Slot) -> None:
        """Where this process is has changed: its neighbours have to know."""
        self._slots[slot.name] = None
        seat = self._roster.seat_of(slot)
        if seat is not None:
            self._neighbours(seat)

    def _neighbours(self, seat: Seat) -> None:
        for name in seat.neighbours:
            holder = self._roster.seats[name].slot
            if holder:
                self._slots[holder] = None

    def apply(self, record: Record) -> None:
        """A decision has been applied to the roster."""
        kind = record["kind"]
        if kind in _OF_ONE:
            self._some = True
        elif kind == "promoted":
            self._slots[record["slot"]] = None
            self._neighbours(self._roster.seats[record["task"]])
        elif kind == "gone":
            self._some = True
            if record["task"]:
                self._neighbours(self._roster.seats[record["task"]])
                self._slots.update(dict.fromkeys(self._roster.unserved.get(record["task"], ())))
        else:
            self.everybody, self._again = True, self._looking

    def due(self, now_ns: int) -> bool:
        """Whether there is anything to look at."""
        if not (self.everybody or self._some or self._slots):
            if now_ns < self.deadline_ns():
                return False
            self.everybody = True
        if self.everybody:
            self._swept_ns = now_ns
        self._looking = True
        return True

    def deadline_ns(self) -> int:
        """When time alone is a reason to look at everybody."""
        return self._swept_ns + SWEEP_NS

    def slots(self) -> list[Slot]:
        """Whom to look at, the longest-serving first."""
        slots = self._roster.slots
        if self.everybody:
            return list(slots.values())
        return [slots[name] for name in sorted(self._slots, key=_number) if name in slots]

    def clear(self) -> None:
        """They have been looked at; what was decided meanwhile about everybody is for the next event."""
        self.everybody, self._again = self._again, False
        self._some = self._looking = False
        self._slots.clear()


def _number(name: str) -> tuple[int, str]:
    """Slots are numbered in the order of their start."""
    return len(name), name
