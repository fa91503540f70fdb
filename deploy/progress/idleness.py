"""The advice to let the operators of a job that has little to do share one process."""

from __future__ import annotations

from causal.topology import Topology
from standby.supervision.job_view import JobView

IDLE_SHARE_MIN = 0.95
"""The share of its time in which each task had nothing to do, from which the advice is shown."""
SECONDS_MIN = 5.0
"""The shortest time of each task that says anything about its load."""


def advice_on_idleness(view: JobView, topology: Topology) -> str:
    """Return the advice for a job of several processes whose tasks were idle; empty if it does not apply.

    Operators with several tasks cannot run in one process, so the advice applies only if each operator has one task.
    """
    operators = [name for task in topology.tasks for name in task.operators]
    if topology.cells or len(topology.tasks) < 2 or len(set(operators)) < len(operators):
        return ""
    shares: list[float] = []
    for task in view.tasks:
        busy_s, blocked_s, idle_s = (float(task.number(name)) for name in ("busy_s", "blocked_s", "idle_s"))
        if busy_s + blocked_s + idle_s < SECONDS_MIN:
            return ""
        shares.append(idle_s / (busy_s + blocked_s + idle_s))
    if not shares or min(shares) < IDLE_SHARE_MIN:
        return ""
    return (
        f"each task was idle for {int(min(shares) * 100)} % of its time or more; --processes one would need about a "
        "quarter of the processor time, in one process that fails and recovers as a whole"
    )
