"""The barrier before which the input of a job is complete, where its sources read recorded input.

That a task has delivered its input is certain only once a checkpoint contains it: if the task dies before, its
successor may take the next barrier at an earlier position.
"""

from __future__ import annotations

from standby.supervision.assignments import Assignments, TaskState, WorkerState


def barrier_after_input(assignments: Assignments) -> int:
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
