"""Lost determinants (D9): ask every task what it depends on, decide who goes back, see it through.

A task that finds something of its own log lost says so in its beats.  Everybody is asked then and stands
still; when all have answered, the decision is journaled, and each is told again and again until its beats
show that it has acted on it.  A supervisor that dies at any moment leaves a question to be put again or
a decision to be carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from causal.rollback import NO_ROLLBACK, Extent, Finding, Retreat, Rollback, decide, read_rollback
from causal.topology import Topology
from standby.checkpoints import Coordinator
from standby.effects import Outbox, Record
from standby.roster import Roster, Seat, Slot, SlotState

AGAIN_NS = 500_000_000
"""How long an answer may take before the question, or the decision, is told again."""


class Inquiries:
    """At most one question is open; what is found lost meanwhile makes it a wider one."""

    def __init__(self, roster: Roster, coordinator: Coordinator, topology: Topology) -> None:
        self._roster = roster
        self._coordinator = coordinator
        self._names = [str(task.name) for task in topology.tasks]
        self._index = {name: index for index, name in enumerate(self._names)}
        self.rollback: Rollback = NO_ROLLBACK
        """The last decision."""
        self.number = 0
        """Of the last question."""
        self.lost: tuple[Extent, ...] = ()
        """What the open question is about; empty if none is open."""
        self._findings: dict[str, tuple[int, Finding]] = {}

    def apply(self, record: Record) -> None:
        """Change by one decision; kinds that do not concern it are left alone."""
        kind = record["kind"]
        if kind == "inquired":
            self.number, self._findings = record["number"], {}
            self.lost = tuple((task, epoch, extent) for task, epoch, extent in record["lost"])
        elif kind == "rolled_back":
            self.rollback, self.lost, self._findings = read_rollback(record["rollback"]), (), {}
        elif kind == "checkpoint":
            lost = tuple(each for each in self.rollback.lost if each[2] >= record["epoch"])
            self.rollback = Rollback(self.rollback.number, lost, self.rollback.retreats)
        elif kind == "resumed":
            self.lost, self._findings = (), {}

    def told_lost(self, seat: Seat, lost: tuple[Extent, ...], outbox: Outbox) -> None:
        """The present incarnation of that task waits, because others depend on more than it could collect."""
        own = {each for each in lost if each[0] == self._index[seat.name]}  # of others' logs it cannot know
        if own <= set(self.lost):
            return
        wider = sorted({*self.lost, *own})
        outbox.decide("inquired", number=self.number + 1, lost=[list(each) for each in wider])

    def found(self, seat: Seat, number: int, finding: Finding) -> None:
        """A task has answered."""
        if self.lost and number == self.number:
            self._findings[seat.name] = (seat.incarnation, finding)

    def settle(self, now_ns: int, outbox: Outbox, slots: Iterable[Slot]) -> None:
        """Ask, decide, tell: whatever is still to do with these slots."""
        for slot in slots:
            if slot.state is not SlotState.SERVING or not slot.seen_ns:
                continue
            behind = slot.rollback < self.rollback.number
            asked = bool(self.lost) and self._findings.get(slot.task, (0,))[0] != slot.incarnation
            if not behind and not asked:
                continue
            about = (self.rollback.number, 0 if behind else self.number)
            if slot.asked_about == about and now_ns - slot.asked_about_ns < AGAIN_NS:
                continue
            slot.asked_about, slot.asked_about_ns = about, now_ns
            if behind:  # first what is decided: a question is about the world after it
                outbox.send(slot.name, "keep", rollback=self.rollback.told())
            else:
                outbox.send(slot.name, "inquire", number=self.number, lost=[list(each) for each in self.lost])
        if self.lost and not self._coordinator.writing and self._all_answered():
            self._decide(now_ns, outbox)

    def _all_answered(self) -> bool:
        if len(self._findings) < len(self._roster.seats):
            return False
        for seat in self._roster.seats.values():
            slot = self._roster.holder(seat)
            if slot is None or slot.state is not SlotState.SERVING or not slot.seen_ns:
                return False
            if self._findings.get(seat.name, (0,))[0] != seat.incarnation:
                return False
        return True

    def _decide(self, now_ns: int, outbox: Outbox) -> None:
        findings = {self._index[name]: finding for name, (_, finding) in self._findings.items()}
        retreats = {
            index: Retreat(self._roster.seats[self._names[index]].incarnation + 1, stands)
            for index, stands in decide(findings).items()
        }
        lost = (*self.rollback.lost, *((self.number, *each) for each in self.lost))
        outbox.decide(
            "rolled_back",
            rollback=Rollback(self.number, lost, retreats).told(),
            tasks={self._names[index]: retreat.incarnation for index, retreat in sorted(retreats.items())},
            why=self._why(findings),
            at_ns=now_ns,
        )

    def _why(self, findings: Mapping[int, Finding]) -> dict[str, str]:
        """A line for each task that would not have had to go back, had nothing been lost."""
        owners = {self._names[task] for task, _, _ in self.lost}
        why = dict.fromkeys(sorted(owners), "determinants that others depend on died with all their holders")
        for index, finding in sorted(findings.items()):
            if finding.orphan is not None:
                why[self._names[index]] = f"depends on determinants of {self._names[finding.orphan[0]]} that are lost"
        return why

    def shown(self) -> dict[str, Any]:
        """For the view."""
        waiting = sorted(set(self._roster.seats) - set(self._findings)) if self.lost else []
        return {"decided": self.rollback.number, "open": bool(self.lost), "waiting_for": waiting}
