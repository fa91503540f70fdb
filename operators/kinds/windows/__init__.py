"""Windows: assigners choose the windows of a record, aggregates reduce it, triggers decide when a window is emitted."""

from operators.kinds.windows.aggregates import Aggregate, Count, Max, Mean, Min, Reduce, Sum
from operators.kinds.windows.assigners import CountWindow, Global, Session, Sliding, Tumbling
from operators.kinds.windows.triggers import Firing, Trigger, after_each, at_end, every, every_s

__all__ = [
    "Aggregate",
    "Count",
    "CountWindow",
    "Firing",
    "Global",
    "Max",
    "Mean",
    "Min",
    "Reduce",
    "Session",
    "Sliding",
    "Sum",
    "Trigger",
    "Tumbling",
    "after_each",
    "at_end",
    "every",
    "every_s",
]
