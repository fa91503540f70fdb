"""Inquiries about lost determinants (D9): which tasks depend on them, and which tasks must therefore roll back.

A task that has lost part of its own log reports the loss in its beats.  All tasks of its connected component are then
asked whether they depend on the lost part, and they pause; the other components of the job continue.  Once all have
answered, the decision is journaled and sent to each of these tasks until the task's beats show that it has carried the
decision out.  If a supervisor dies at any moment, its successor repeats the question or carries out the decision.

Questions are numbered across the whole job, so no two losses have the same number.  A record without a component was
written by a version that asked every task, so it applies to each component.
"""

from __future__ import annotations

from collections.abc import Iterable

from causal.logs.rollback import Extent, OrphanAnswer, Rollback
from causal.topology import Topology
from standby.supervision.assignments import Assignments, TaskEntry, WorkerEntry, WorkerState
from standby.supervision.checkpoints import Coordinator
from standby.supervision.component_inquiry import ComponentInquiry
from standby.supervision.effects import Outbox, Record
from standby.supervision.job_view import InquiryView


class Inquiries:
    """The inquiries of all connected components of a job."""

    def __init__(self, assignments: Assignments, coordinator: Coordinator, topology: Topology) -> None:
        self._assignments = assignments
        self._coordinator = coordinator
        names = [str(task.name) for task in topology.tasks]
        self._components = {tasks[0]: ComponentInquiry(assignments, names, tasks) for tasks in topology.components}
        self._of = {names[index]: self._components[tasks[0]] for tasks in topology.components for index in tasks}

    def of(self, task: str) -> ComponentInquiry:
        """Return the inquiry of the component to which a task belongs."""
        return self._of[task]

    def rollback_of(self, task: str) -> Rollback:
        """Return the last decision that concerns the component of a task."""
        return self._of[task].rollback

    @property
    def number(self) -> int:
        """The number of the most recent question."""
        return max(each.number for each in self._components.values())

    @property
    def open(self) -> list[ComponentInquiry]:
        """The inquiries with an open question."""
        return [each for each in self._components.values() if each.lost]

    def apply(self, record: Record) -> None:
        """Apply one decision; a decision that does not concern lost determinants has no effect."""
        if record["kind"] in ("inquired", "rolled_back") and "component" in record:
            self._components[record["component"]].apply(record)
        elif record["kind"] in ("inquired", "rolled_back", "checkpoint", "resumed"):
            for each in self._components.values():
                each.apply(record)

    def record_lost(self, entry: TaskEntry, lost: tuple[Extent, ...], outbox: Outbox) -> None:
        """Ask which tasks depend on extents that the current incarnation of a task could not collect."""
        inquiry = self._of[entry.name]
        wider = inquiry.widened(entry, lost)
        if wider:
            facts = {"number": self.number + 1, "lost": [list(each) for each in wider]}
            outbox.decide("inquired", component=inquiry.component, **facts)

    def record_answer(self, entry: TaskEntry, number: int, finding: OrphanAnswer) -> None:
        """Record a task's answer to the open question of its component."""
        self._of[entry.name].record_answer(entry, number, finding)

    def settle(self, now_ns: int, outbox: Outbox, slots: Iterable[WorkerEntry]) -> None:
        """Send the question or the last decision to each of these slots that lacks it; decide once all have
        answered.
        """
        for slot in slots:
            if slot.state is WorkerState.SERVING and slot.seen_ns:
                self._of[slot.task].send(slot, now_ns, outbox)
        for inquiry in self.open:
            if not self._coordinator.writing and inquiry.all_answered:
                inquiry.decide(now_ns, outbox)

    def shown(self) -> InquiryView:
        """Return the part of the view that concerns lost determinants."""
        decided = max(each.rollback.number for each in self._components.values())
        waiting = sorted(name for each in self.open for name in each.awaited)
        return InquiryView(decided, bool(self.open), waiting)
