"""What processes work on for long, and when that is worth a line in the supervisor's log.

The first line of a process comes after `LINE_NS`; after each line the next one takes twice as long to come, so that a
job whose every record takes a minute has a handful of lines, not one per record.
"""

from __future__ import annotations

from causal.activity import Activity, sentence
from standby.roster import Slot

LINE_NS = 5_000_000_000


def learn(slot: Slot, doing: Activity | None, now_ns: int) -> str | None:
    """Take what a process says that it works on; gives the line to log, if there is one."""
    slot.doing = doing
    if doing is None or now_ns - doing.since_ns < (slot.line_after_ns or LINE_NS):
        return None
    slot.line_after_ns = 2 * (now_ns - doing.since_ns)
    return f"{slot.task or slot.purpose or slot.name}: {sentence(doing.message(), now_ns)}"
