"""Lines in the supervisor's log about processes whose work takes long.

The first line about a process is logged after `LINE_NS`, and each later line after twice as long, so that a job whose
every record takes a minute logs a few lines and not one per record.
"""

from __future__ import annotations

from causal.task.activity import Activity, sentence
from standby.supervision.assignments import WorkerEntry

LINE_NS = 5_000_000_000


def learn(slot: WorkerEntry, doing: Activity | None, now_ns: int) -> str | None:
    """Store the work that a process reports, and return the line to log, if any."""
    slot.doing = doing
    if doing is None or now_ns - doing.since_ns < (slot.line_after_ns or LINE_NS):
        return None
    slot.line_after_ns = 2 * (now_ns - doing.since_ns)
    return f"{slot.task or slot.purpose or slot.name}: {sentence(doing, now_ns)}"
