"""The inquiry about lost determinants within one connected component of the graph (D9).

No determinant is sent from one component to another.  The answers of the tasks in one component therefore form a
consistent cut of that component, and tasks of other components neither answer nor pause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from causal import commands
from causal.logs.rollback import NO_ROLLBACK, Extent, OrphanAnswer, Rollback, TaskRollback, decide, read_rollback
from standby.supervision.assignments import Assignments, TaskEntry, WorkerEntry, WorkerState
from standby.supervision.effects import Outbox, Record

AGAIN_NS = 500_000_000
"""The time to wait for an answer before the question or the decision is sent again."""


class ComponentInquiry:
    """The open question of one component, if there is one, and its last decision; further losses widen the question."""

    def __init__(self, assignments: Assignments, names: Sequence[str], tasks: Sequence[int]) -> None:
        """
        Args:
            names: the names of all tasks of the job, by index.
            tasks: the indexes of the tasks in this component.
        """
        self._assignments = assignments
        self._names = names
        self._index = {names[index]: index for index in tasks}
        self.component = tasks[0]
        """The index of the component's first task, which identifies the component in the journal."""
        self.rollback: Rollback = NO_ROLLBACK
        """The most recent decision about the component."""
        self.number = 0
        """The number of the most recent question."""
        self.lost: tuple[Extent, ...] = ()
        """The extents that the open question concerns; empty if no question is open."""
        self._findings: dict[str, tuple[int, OrphanAnswer]] = {}

    def apply(self, record: Record) -> None:
        """Apply one decision about this component, or about all components."""
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

    def widened(self, entry: TaskEntry, lost: Sequence[Extent]) -> list[Extent]:
        """Return the extents of a question that includes a task's new losses; empty if the open question includes
        them.
        """
        # A task may report losses only of its own log.
        own = {each for each in lost if each[0] == self._index[entry.name]}
        return [] if own <= set(self.lost) else sorted({*self.lost, *own})

    def record_answer(self, entry: TaskEntry, number: int, finding: OrphanAnswer) -> None:
        """Record a task's answer to the open question."""
        if self.lost and number == self.number:
            self._findings[entry.name] = (entry.incarnation, finding)

    def send(self, slot: WorkerEntry, now_ns: int, outbox: Outbox) -> None:
        """Send the last decision or the open question to the process of a task if the process lacks it."""
        behind = slot.rollback < self.rollback.number
        asked = bool(self.lost) and self._findings.get(slot.task, (0,))[0] != slot.incarnation
        if not behind and not asked:
            return
        about = (self.rollback.number, 0 if behind else self.number)
        if slot.asked_about == about and now_ns - slot.asked_about_ns < AGAIN_NS:
            return
        slot.asked_about, slot.asked_about_ns = about, now_ns
        if behind:  # the decision is sent first, because the question refers to the state after it
            outbox.send(slot.name, commands.Keep(self.rollback.message()))
        else:
            outbox.send(slot.name, commands.Inquire(self.number, tuple(self.lost)))

    @property
    def all_answered(self) -> bool:
        """Whether a question is open and the current incarnation of every task has answered it."""
        if not self.lost or len(self._findings) < len(self._index):
            return False
        for name in self._index:
            entry = self._assignments.tasks[name]
            slot = self._assignments.holder(entry)
            if slot is None or slot.state is not WorkerState.SERVING or not slot.seen_ns:
                return False
            if self._findings.get(entry.name, (0,))[0] != entry.incarnation:
                return False
        return True

    def decide(self, now_ns: int, outbox: Outbox) -> None:
        """Decide which tasks of the component roll back, based on the answers of all its tasks."""
        findings = {self._index[name]: finding for name, (_, finding) in self._findings.items()}
        retreats = {
            index: TaskRollback(self._assignments.tasks[self._names[index]].incarnation + 1, stands)
            for index, stands in decide(findings).items()
        }
        lost = (*self.rollback.lost, *((self.number, *each) for each in self.lost))
        outbox.decide(
            "rolled_back",
            component=self.component,
            rollback=Rollback(self.number, lost, retreats).message(),
            tasks={self._names[index]: retreat.incarnation for index, retreat in sorted(retreats.items())},
            why=self._why(findings),
            at_ns=now_ns,
        )

    def _why(self, findings: Mapping[int, OrphanAnswer]) -> dict[str, str]:
        """Return a one-line reason for each task that lost determinants or depends on lost ones."""
        owners = {self._names[task] for task, _, _ in self.lost}
        why = dict.fromkeys(sorted(owners), "determinants on which other tasks depend were lost with all their holders")
        for index, finding in sorted(findings.items()):
            if finding.orphan is not None:
                why[self._names[index]] = f"depends on determinants of {self._names[finding.orphan[0]]} that are lost"
        return why

    @property
    def awaited(self) -> list[str]:
        """The tasks that have not answered the open question."""
        return sorted(set(self._index) - set(self._findings)) if self.lost else []
