"""Lost determinants (D9): ask every task what it depends on, decide which tasks roll back, and carry it out.

A task that finds a part of its own log lost reports it in its beats.  Every task is then asked and pauses.
When all have answered, the decision is journaled and sent to each task until its beats show that it has
acted on it.  A supervisor that dies at any moment leaves a question to be repeated or a decision to be
carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from causal import commands
from causal.logs.rollback import NO_ROLLBACK, Extent, OrphanAnswer, Rollback, TaskRollback, decide, read_rollback
from causal.topology import Topology
from standby.supervision.assignments import Assignments, TaskEntry, WorkerEntry, WorkerState
from standby.supervision.checkpoints import Coordinator
from standby.supervision.effects import Outbox, Record

AGAIN_NS = 500_000_000
"""The time for an answer before the question, or the decision, is sent again."""


class Inquiries:
    """The open question, if any, and the last decision; more losses widen the open question."""

    def __init__(self, assignments: Assignments, coordinator: Coordinator, topology: Topology) -> None:
        self._assignments = assignments
        self._coordinator = coordinator
        self._names = [str(task.name) for task in topology.tasks]
        self._index = {name: index for index, name in enumerate(self._names)}
        self.rollback: Rollback = NO_ROLLBACK
        """The last decision."""
        self.number = 0
        """The number of the last question."""
        self.lost: tuple[Extent, ...] = ()
        """The extents that the open question is about; empty if none is open."""
        self._findings: dict[str, tuple[int, OrphanAnswer]] = {}

    def apply(self, record: Record) -> None:
        """Applies one decision; kinds that do not concern lost determinants change nothing."""
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

    def record_lost(self, entry: TaskEntry, lost: tuple[Extent, ...], outbox: Outbox) -> None:
        """Asks about extents that the present incarnation of a task could not collect and others depend on."""
        own = {each for each in lost if each[0] == self._index[entry.name]}  # only of its own log
        if own <= set(self.lost):
            return
        wider = sorted({*self.lost, *own})
        outbox.decide("inquired", number=self.number + 1, lost=[list(each) for each in wider])

    def record_answer(self, entry: TaskEntry, number: int, finding: OrphanAnswer) -> None:
        """Records a task's answer to the open question."""
        if self.lost and number == self.number:
            self._findings[entry.name] = (entry.incarnation, finding)

    def settle(self, now_ns: int, outbox: Outbox, slots: Iterable[WorkerEntry]) -> None:
        """Sends the question or the last decision to those of these slots that lack it; decides once all answered."""
        for slot in slots:
            if slot.state is not WorkerState.SERVING or not slot.seen_ns:
                continue
            behind = slot.rollback < self.rollback.number
            asked = bool(self.lost) and self._findings.get(slot.task, (0,))[0] != slot.incarnation
            if not behind and not asked:
                continue
            about = (self.rollback.number, 0 if behind else self.number)
            if slot.asked_about == about and now_ns - slot.asked_about_ns < AGAIN_NS:
                continue
            slot.asked_about, slot.asked_about_ns = about, now_ns
            if behind:  # first the decision: a question is about the state after it
                outbox.send(slot.name, commands.Keep(self.rollback.message()))
            else:
                outbox.send(slot.name, commands.Inquire(self.number, tuple(self.lost)))
        if self.lost and not self._coordinator.writing and self._all_answered():
            self._decide(now_ns, outbox)

    def _all_answered(self) -> bool:
        if len(self._findings) < len(self._assignments.tasks):
            return False
        for entry in self._assignments.tasks.values():
            slot = self._assignments.holder(entry)
            if slot is None or slot.state is not WorkerState.SERVING or not slot.seen_ns:
                return False
            if self._findings.get(entry.name, (0,))[0] != entry.incarnation:
                return False
        return True

    def _decide(self, now_ns: int, outbox: Outbox) -> None:
        findings = {self._index[name]: finding for name, (_, finding) in self._findings.items()}
        retreats = {
            index: TaskRollback(self._assignments.tasks[self._names[index]].incarnation + 1, stands)
            for index, stands in decide(findings).items()
        }
        lost = (*self.rollback.lost, *((self.number, *each) for each in self.lost))
        outbox.decide(
            "rolled_back",
            rollback=Rollback(self.number, lost, retreats).message(),
            tasks={self._names[index]: retreat.incarnation for index, retreat in sorted(retreats.items())},
            why=self._why(findings),
            at_ns=now_ns,
        )

    def _why(self, findings: Mapping[int, OrphanAnswer]) -> dict[str, str]:
        """The reason, as a line, for each task that lost determinants or depends on lost ones."""
        owners = {self._names[task] for task, _, _ in self.lost}
        why = dict.fromkeys(sorted(owners), "determinants that others depend on died with all their holders")
        for index, finding in sorted(findings.items()):
            if finding.orphan is not None:
                why[self._names[index]] = f"depends on determinants of {self._names[finding.orphan[0]]} that are lost"
        return why

    def shown(self) -> dict[str, Any]:
        """The part of the view about lost determinants."""
        waiting = sorted(set(self._assignments.tasks) - set(self._findings)) if self.lost else []
        return {"decided": self.rollback.number, "open": bool(self.lost), "waiting_for": waiting}
