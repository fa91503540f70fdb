"""What sinks whose rows are staged have made visible, and whether the end waits for nothing but a checkpoint.

Both follow from the beats alone (guarantee `epoch`), so a supervisor that has just started knows them again at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from standby.checkpoints import Coordinator
from standby.roster import Roster, Slot, SlotState

STAGED, FINISHED = "staged", "finished"


@dataclass(frozen=True, slots=True)
class Staging:
    """The sinks of one job; `enabled` where their rows are staged."""

    roster: Roster
    coordinator: Coordinator
    enabled: bool

    def hurries(self) -> bool:
        """Whether the next checkpoint should begin at once: all inputs have ended, and rows wait for it.

        Who says so before it has acted on the last complete checkpoint may have been covered by that one.
        """
        slots = self._sinks() if self.enabled else []
        waits = [slot.committed >= self.coordinator.complete for slot in slots if slot.word == STAGED]
        return bool(waits) and all(waits) and all(slot.word in (STAGED, FINISHED) for slot in slots)

    def shown(self, epoch: int) -> bool:
        """Whether every row of the epochs below `epoch` is visible, which is complete."""
        return not self.enabled or all(slot.committed >= epoch for slot in self._sinks())

    def _sinks(self) -> list[Slot]:
        """The processes of all sink tasks; one that is nobody's yet stands for a task without a process."""
        found = []
        for seat in self.roster.seats.values():
            if seat.sink:
                slot = self.roster.holder(seat)
                serving = slot is not None and slot.state is SlotState.SERVING and slot.seen_ns
                found.append(slot if slot is not None and serving else Slot("", "", committed=-1))
        return found
