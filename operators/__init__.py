"""What users of the runtime import: the builder, the operator, and what operators meet."""

from operators.context import CallFailed, Context
from operators.declared import ListState, MapState, ReducingState, ValueState
from operators.eventtime.generators import WatermarkGenerator
from operators.operator import Operator
from operators.pipeline import Pipeline, Stream
from operators.typed import KeyedStream
from operators.windows import Window

__all__ = [
    "CallFailed",
    "Context",
    "KeyedStream",
    "ListState",
    "MapState",
    "Operator",
    "Pipeline",
    "ReducingState",
    "Stream",
    "ValueState",
    "WatermarkGenerator",
    "Window",
]
