"""Who becomes which task, which processes are needed for it, and who must be told where everybody is.

Everything here compares what is with what should be and closes the difference, so it does not matter
which event opened it: the start of the job, a death, two deaths, a death while recovering, or a
supervisor that knows its predecessor's decisions but not which of its messages arrived.
"""

from __future__ import annotations

from standby.attention import Attention
from standby.checkpoints import Coordinator
from standby.effects import KillProcess, Note, Outbox, StartProcess
from standby.inquiries import Inquiries
from standby.recoveries import Timeline
from standby.roster import Roster, Seat, SeatState, Slot, SlotState

AGAIN_NS = 1_000_000_000
"""How long a command may take to show in the beats before it is repeated."""

FOLLOW_NS = 200_000_000
"""Between two times that a standby is given a later state: where checkpoints come faster it loads several at once."""

BACKOFF_NS_MIN, BACKOFF_NS_MAX = 100_000_000, 5_000_000_000
"""Wait before a standby that died before it was ready is replaced; doubles with each such death."""

WORKER = "worker"
ROLLBACK = "rollback"
"""Why a healthy task is killed: without determinants, tasks go back to a checkpoint together or not at all."""

PER_TASK = "per-task"


class Promotion:
    """Keeps every task served and every standby ready."""

    def __init__(
        self,
        roster: Roster,
        coordinator: Coordinator,
        timeline: Timeline,
        inquiries: Inquiries,
        standbys: str,
        together: bool = False,
        every_epoch: bool = False,
    ) -> None:
        """
        Args:
            together: one failure takes every task back to the last complete checkpoint (at-least-once).
            every_epoch: standbys are given each epoch by itself, to check it.
        """
        self._roster = roster
        self._coordinator = coordinator
        self._timeline = timeline
        self._inquiries = inquiries
        self._together = together
        self._follow_ns = 0 if every_epoch else FOLLOW_NS
        self._pool = None if standbys == PER_TASK else int(standbys)
        self._stillborn: dict[str, int] = {}
        self._start_from_ns: dict[str, int] = {}

    def settle(self, now_ns: int, outbox: Outbox, attention: Attention) -> None:
        """Promote, start, and tell, until nothing is left to do with the processes that need attention."""
        # While a manifest is written, the state to promote from is about to change: a few milliseconds.
        if not self._coordinator.writing and not self._rolling_back():
            for seat in self._waiting(attention):
                slot = self._candidate(seat)
                if slot is not None:
                    self._promote(seat, slot, outbox)
                elif self._pool is not None:
                    break  # whoever is idle would do for any of them
        slots = attention.slots()
        for slot in slots:
            if slot.seen_ns and slot.state is SlotState.ASSIGNED:
                self._command(slot, now_ns, outbox)
        for slot in slots:
            if slot.seen_ns and slot.state in (SlotState.ASSIGNED, SlotState.SERVING):
                self._introduce(slot, now_ns, outbox)
        for slot in slots:
            if slot.seen_ns and slot.state is SlotState.IDLE:
                self._follow(slot, now_ns, outbox)
        self._start_missing(now_ns, outbox)

    def _waiting(self, attention: Attention) -> list[Seat]:
        """Tasks that may have found a process: each has its own standby, or all wait for the same."""
        if attention.everybody or self._together or self._pool is not None:
            return self._roster.waiting()
        purposes = {slot.purpose: None for slot in attention.slots() if slot.state is SlotState.IDLE}
        seats = [self._roster.seats[purpose] for purpose in purposes if purpose]
        return [seat for seat in seats if seat.state is SeatState.WAITING]

    def _rolling_back(self) -> bool:
        """Whether somebody who must go back with the others has not ended yet: it must not meet their successors."""
        if not self._together or not self._roster.waiting_count:
            return False
        return any(slot.task and slot.state is SlotState.LEAVING for slot in self._roster.slots.values())

    def roll_back(self, now_ns: int, outbox: Outbox) -> None:
        """A task has failed and nobody holds its determinants: all go back to the last complete checkpoint."""
        if not self._together:
            return
        for slot in list(self._roster.slots.values()):
            if slot.state in (SlotState.SERVING, SlotState.ASSIGNED):
                self.kill(slot, ROLLBACK, now_ns, outbox)

    def _candidate(self, seat: Seat) -> Slot | None:
        """Its own standby if there is one, else one of the pool."""
        return self._roster.idle(seat.name) or self._roster.idle("")

    def _promote(self, seat: Seat, slot: Slot, outbox: Outbox) -> None:
        recovery = self._timeline.of(seat.name, seat.incarnation + 1)
        # A standby is ready before the failure; a process that was still coming up, or started for it, is a cold start.
        ready = recovery is not None and slot.ready_ns <= recovery.detected_ns
        outbox.decide(
            "promoted",
            task=seat.name,
            incarnation=seat.incarnation + 1,
            slot=slot.name,
            epoch=self._coordinator.complete,
            mode=self._mode(ready),
        )

    def _mode(self, ready: bool) -> str:
        if self._together:
            return ROLLBACK
        return "standby" if ready else "cold"

    def _command(self, slot: Slot, now_ns: int, outbox: Outbox) -> None:
        """Send `promote` until the beats confirm it."""
        seat = self._roster.seat_of(slot)
        if seat is None or (slot.commanded_ns and now_ns - slot.commanded_ns < AGAIN_NS):
            return
        slot.commanded_ns = now_ns
        known = self._whereabouts(seat)
        slot.peers_told, slot.peers_told_ns = dict(known), now_ns
        outbox.send(
            slot.name,
            "promote",
            task=seat.name,
            incarnation=seat.incarnation,
            epoch=self._coordinator.complete,
            files=[list(file) for file in self._coordinator.files.get(seat.name, ())],
            peers={name: [endpoint, incarnation] for name, (endpoint, incarnation) in known.items() if endpoint},
            rollback=self._inquiries.rollback.told(),
        )

    def _whereabouts(self, seat: Seat) -> dict[str, tuple[str, int]]:
        """Where each neighbour is; an empty endpoint where it is known to be nowhere."""
        known: dict[str, tuple[str, int]] = {}
        for name in seat.neighbours:
            neighbour = self._roster.seats[name]
            holder = self._roster.holder(neighbour)
            if holder is not None and holder.endpoint and holder.state is not SlotState.LEAVING:
                known[name] = (holder.endpoint, neighbour.incarnation)
            elif neighbour.state is SeatState.WAITING and neighbour.incarnation and name not in seat.upstream:
                known[name] = ("", neighbour.incarnation)
        return known

    def _introduce(self, slot: Slot, now_ns: int, outbox: Outbox) -> None:
        """Tell a task what has changed about its neighbours since it was last told, until its beats show it."""
        seat = self._roster.seat_of(slot)
        if seat is None or not slot.commanded_ns and slot.state is SlotState.ASSIGNED:
            return
        again = now_ns - slot.peers_told_ns >= AGAIN_NS
        for name, (endpoint, incarnation) in self._whereabouts(seat).items():
            known = slot.peers_known.get(name) == (incarnation if endpoint else -incarnation)
            if slot.peers_told.get(name) == (endpoint, incarnation) and (known or not again):
                continue
            slot.peers_told[name], slot.peers_told_ns = (endpoint, incarnation), now_ns
            if endpoint:
                outbox.send(slot.name, "peer", task=name, endpoint=endpoint, incarnation=incarnation)
            else:
                outbox.send(slot.name, "peer_down", task=name, incarnation=incarnation)

    def _follow(self, slot: Slot, now_ns: int, outbox: Outbox) -> None:
        """Have a task's own standby load the latest complete state."""
        if not slot.purpose:
            return
        epoch = self._coordinator.complete
        since_ns = now_ns - slot.commanded_ns
        if slot.following == (slot.purpose, epoch):
            if slot.followed == epoch or since_ns < AGAIN_NS:
                return
        elif slot.following is not None and since_ns < self._follow_ns:
            return  # the next checkpoint finds it here again, and if there is none, the next look at everybody does
        slot.following, slot.commanded_ns = (slot.purpose, epoch), now_ns
        files = [list(file) for file in self._coordinator.files.get(slot.purpose, ())]
        outbox.send(slot.name, "follow", task=slot.purpose, epoch=epoch, files=files)

    def _start_missing(self, now_ns: int, outbox: Outbox) -> None:
        """Start processes so that every waiting task and, once all tasks have run, every standby place has one."""
        roster = self._roster
        if self._pool is None:
            lacking = list(roster.short) if roster.short and self._standbys_due(now_ns) else roster.unmanned()
        else:
            wanted = roster.waiting_count + (self._pool if self._standbys_due(now_ns) else 0)
            lacking = [""] * (wanted - len(roster.unserved.get("", ())))
        for purpose in lacking:
            if now_ns >= self._start_from_ns.get(purpose, 0):
                self._start(purpose, now_ns, outbox)

    def _standbys_due(self, now_ns: int) -> bool:
        """Standbys come up after the tasks have, so that they slow neither the start of the job nor a recovery."""
        if not self._roster.up or self._timeline.busy(now_ns):
            return False
        return self._roster.confirmed

    def _start(self, purpose: str, now_ns: int, outbox: Outbox) -> None:
        number = self._roster.started_max + 1
        name = f"w{number}"
        outbox.decide("process", slot=name, number=number, purpose=purpose)
        slot = self._roster.slots[name]
        slot.known_ns = slot.asked_ns = now_ns
        outbox.add(StartProcess(name, WORKER))

    def ready(self, slot: Slot) -> None:
        """A process has come up and loaded what it should: the next one that does not is the first in its row again."""
        self._stillborn.pop(slot.purpose, None)

    def stillborn(self, purpose: str, now_ns: int) -> None:
        """A standby ended before it was of use: wait before the next try, longer each time."""
        count = self._stillborn[purpose] = self._stillborn.get(purpose, 0) + 1
        self._start_from_ns[purpose] = now_ns + min(BACKOFF_NS_MIN << min(count - 1, 16), BACKOFF_NS_MAX)

    def stillborn_count(self, purpose: str) -> int:
        """How many in a row ended before they were ready."""
        return self._stillborn.get(purpose, 0)

    def ask_again(self, slot: Slot, now_ns: int, outbox: Outbox) -> None:
        """The agent does not know a slot that it should start."""
        if now_ns - slot.asked_ns >= AGAIN_NS:
            slot.asked_ns = now_ns
            outbox.add(Note(f"{slot.name}: asking the agent again to start it"))
            outbox.add(StartProcess(slot.name, WORKER))

    def kill(self, slot: Slot, why: str, now_ns: int, outbox: Outbox) -> None:
        """Have the process killed; what it ran is promoted elsewhere when its exit is confirmed."""
        outbox.decide("killing", slot=slot.name, why=why)
        slot.asked_ns = now_ns
        outbox.add(KillProcess(slot.name))

    def deadline_ns(self, now_ns: int) -> int | None:
        """When a process whose start was put off is due."""
        due = [at for at in self._start_from_ns.values() if at > now_ns]
        return min(due) if due else None
