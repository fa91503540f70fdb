"""Windows: which stretches of time a record belongs to, what is kept of it there, and when that is told."""

from operators.windowing.aggregates import Aggregate, Count, Max, Mean, Min, Reduce, Sum
from operators.windowing.assigners import CountWindow, Global, Session, Sliding, Tumbling
from operators.windowing.triggers import Firing, Trigger, after_each, at_end, every, every_s

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
