"""The end of a job whose sources read recorded input: a final savepoint, once a checkpoint contains all of it.

That a task has delivered its input is certain only once a checkpoint contains it: if the task dies before, its
successor may take the next barrier at an earlier position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standby.supervision.assignments import Assignments, TaskState, WorkerState
from standby.supervision.effects import Outbox

if TYPE_CHECKING:
    from standby.supervision.checkpoints import Coordinator


def end_with_input(assignments: Assignments, coordinator: Coordinator, outbox: Outbox) -> None:
    """Request the checkpoint that contains all input, and then the savepoint at which the job ends."""
    barrier = _contains_all(assignments)
    if not barrier or coordinator.final:
        return
    if barrier <= coordinator.complete:
        coordinator.request(True, outbox)
    elif not coordinator.under_way and coordinator.requested <= coordinator.complete:
        coordinator.request(False, outbox)


def _contains_all(assignments: Assignments) -> int:
    """Return the first barrier before which all input is delivered; 0 if that is not known, or if all input ends."""
    barriers = [0]
    for entry in assignments.sources:
        slot = assignments.holder(entry)
        if entry.finished:
            continue
        serving = entry.state is TaskState.SERVED and slot is not None and slot.state is WorkerState.SERVING
        if slot is None or not serving or not slot.input_complete:
            return 0
        barriers.append(slot.input_complete)
    return max(barriers)
