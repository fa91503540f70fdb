"""What users of the runtime import: the builder, the operator, and what operators meet."""

from operators.broadcast import BroadcastContext, BroadcastOperator
from operators.context import CallFailed, Context
from operators.declared import ListState, MapState, ReducingState, ValueState
from operators.eventtime.generators import WatermarkGenerator
from operators.operator import Operator
from operators.pipeline import Pipeline, Stream
from operators.streams.table import Table
from operators.typed import KeyedStream
from operators.windowing import (
    Aggregate,
    Count,
    CountWindow,
    Firing,
    Global,
    Max,
    Mean,
    Min,
    Reduce,
    Session,
    Sliding,
    Sum,
    Trigger,
    Tumbling,
    after_each,
    at_end,
    every,
    every_s,
)
from operators.windows import Window

__all__ = [
    "Aggregate",
    "BroadcastContext",
    "BroadcastOperator",
    "CallFailed",
    "Context",
    "Count",
    "CountWindow",
    "Firing",
    "Global",
    "KeyedStream",
    "ListState",
    "MapState",
    "Max",
    "Mean",
    "Min",
    "Operator",
    "Pipeline",
    "Reduce",
    "ReducingState",
    "Session",
    "Sliding",
    "Stream",
    "Sum",
    "Table",
    "Trigger",
    "Tumbling",
    "ValueState",
    "WatermarkGenerator",
    "Window",
    "after_each",
    "at_end",
    "every",
    "every_s",
]
