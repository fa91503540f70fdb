"""What the end of a worker process means: a recovery, a lost standby, or one failure too many."""

from __future__ import annotations

from dataclasses import dataclass

from standby.effects import Outbox
from standby.figures import Figures
from standby.injection import Injection
from standby.promotion import Promotion
from standby.roster import Roster, Seat, SeatState, Slot, SlotState


@dataclass(frozen=True, slots=True)
class Failures:
    """Judges ends of processes; what to do about them is decided elsewhere, from the state they leave."""

    roster: Roster
    figures: Figures
    injection: Injection
    promotion: Promotion
    crash_loop_max: int

    def gone(
        self, slot: Slot, killed_ns: int | None, last_line: str, stopping: bool, now_ns: int, outbox: Outbox
    ) -> str | None:
        """A worker process has ended.

        Args:
            killed_ns: the moment of the kill, if it was one of ours.
            last_line: what it said last, to us or else in its log.
            stopping: the job is ending, so this is no failure.

        Returns: why the job must end now, if it must.
        """
        seat = self.roster.seat_of(slot)
        requested = self.injection.requested(slot.name)
        failure = not requested and not stopping and (seat is not None or self._waited_for(slot))
        sign_ns = killed_ns if killed_ns is not None else slot.alive_ns
        outbox.decide(
            "gone",
            slot=slot.name,
            task=seat.name if seat is not None else "",
            incarnation=slot.incarnation,
            since_ns=sign_ns or now_ns,
            detected_ns=now_ns,
            failure=failure,
            recover=not stopping,
            counters=dict(self.figures.last_told(seat.name, slot.incarnation)) if seat is not None else {},
        )
        if seat is None and not requested:
            self.promotion.stillborn(slot.purpose, now_ns)
        return None if stopping else self._crash_loop(slot, seat, last_line)

    def _waited_for(self, slot: Slot) -> bool:
        """Whether a task was waiting for just this process to come up."""
        seat = self.roster.seats.get(slot.purpose)
        born = slot.ready_ns and slot.state is not SlotState.STARTING
        return seat is not None and seat.state is SeatState.WAITING and not born

    def _crash_loop(self, slot: Slot, seat: Seat | None, last_line: str) -> str | None:
        told_of = seat if seat is not None else self.roster.seats.get(slot.purpose)
        if told_of is not None:
            name, failures = told_of.name, told_of.failures
        elif not self.roster.up:  # the pool cannot even give the job its first processes
            name, failures = "a worker", self.promotion.stillborn_count(slot.purpose)
        else:
            return None
        if failures < self.crash_loop_max:
            return None
        told = f"; it ended with: {last_line}" if last_line else ""
        return (
            f"{name} failed {failures} times in a row without a complete checkpoint in between:"
            f" see logs/{slot.name}.log{told}"
        )
