"""The operator API, as users of the runtime import it: the builder, the operator, and what operators meet."""

from operators.builder.pipeline import Pipeline
from operators.builder.streams.stream import KeyedStream, Stream
from operators.builder.streams.table import Table
from operators.kinds.eventtime.watermarks import WatermarkGenerator
from operators.kinds.process.broadcast import BroadcastContext, BroadcastOperator
from operators.kinds.windows import (
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
from operators.kinds.windows.task_windows import Window
from operators.stage.context import CallFailed, Context
from operators.stage.operator import Operator
from operators.state.declared import ListState, MapState, ReducingState, ValueState

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
