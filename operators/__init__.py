"""The operator API that pipeline files import: the builder, the `Operator` class, and the types operators work with.

Names are imported lazily, so that a command that only inspects a job imports few modules of this package.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from operators.builder.pipeline import KeyedStream, Pipeline, Stream, Table
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
else:
    from importlib import import_module

    _PLACES = {
        "operators.builder.pipeline": "KeyedStream Pipeline Stream Table",
        "operators.kinds.eventtime.watermarks": "WatermarkGenerator",
        "operators.kinds.process.broadcast": "BroadcastContext BroadcastOperator",
        "operators.kinds.windows": "Aggregate Count CountWindow Firing Global Max Mean Min Reduce "
        "Session Sliding Sum Trigger Tumbling after_each at_end every every_s",
        "operators.kinds.windows.task_windows": "Window",
        "operators.stage.context": "CallFailed Context",
        "operators.stage.operator": "Operator",
        "operators.state.declared": "ListState MapState ReducingState ValueState",
    }
    _PLACE_OF = {name: module for module, names in _PLACES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        if name not in _PLACE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_PLACE_OF[name]), name)
        return value

    def __dir__() -> list[str]:
        return [*globals(), *_PLACE_OF]


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
