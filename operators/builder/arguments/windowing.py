"""Checks of the arguments of `window`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from causal.errors import PipelineError
from operators.builder.arguments.basics import check_callable, delivery_option, kind_of, seconds
from operators.functions import check_methods
from operators.kinds.windows.aggregates import Aggregate
from operators.kinds.windows.assigners import (
    Assigned,
    Assigner,
    CountWindow,
    Global,
    Session,
    Sliding,
    Tumbling,
    clock_of,
)
from operators.kinds.windows.triggers import Trigger

_KINDS = {Session: "session", CountWindow: "count", Global: "global"}
"""The window kinds that do not accept lateness or do not accept a trigger."""
_TRIGGERING = {
    "on_record": ("state", "record", "window", "mark_s"),
    "wake_at_s": ("state", "window"),
    "on_time": ("state", "window", "at_s"),
}
"""The methods of a trigger and their parameters."""


def end_of(result: Any) -> Any:
    """Return the event time of `(key, value, start, end)`: one microsecond before the end of the window."""
    return result[3] - 1e-6


def check_merges(where: str, what: str, assigned: object, contents: object) -> None:
    """Refuse an aggregate of sessions that cannot merge two of them."""
    if isinstance(assigned, Session) and isinstance(contents, Aggregate) and contents.merge is None:
        raise PipelineError(f"{where}: {what} aggregates without merge; use Aggregate(..., merge=fn)")


def window_options(
    where: str,
    name: str,
    assigner: Assigned | float,
    contents: Aggregate[Any, Any] | Callable[..., Any],
    vectors: bool,
    trigger: Trigger | None,
    lateness_s: float,
    delivery: str,
) -> dict[str, Any]:
    """Return the options of a `window` operator."""
    assigned = _assigner(where, name, assigner)
    if isinstance(contents, type) and issubclass(contents, Aggregate):
        raise PipelineError(f"{where}: window {name!r} was given {kind_of(contents)}; pass {contents.__name__}(...)")
    if not isinstance(contents, Aggregate):
        parameters = ("batch", "window") if vectors else ("key", "records", "window")
        check_callable(where, f"window {name!r}", contents, parameters, generates=not vectors)
    if vectors and (isinstance(contents, Aggregate) or not isinstance(assigner, (int, float))):
        raise PipelineError(
            f"{where}: window {name!r} on vectors takes a number of seconds and a function of (batch, window); "
            "put .to_rows(name) before any other window"
        )
    check_merges(where, f"session window {name!r}", assigned, contents)
    _check_trigger(where, name, assigned, trigger)
    lateness_ns = seconds(where, f"window {name!r} has lateness_s", lateness_s, 0)
    if lateness_ns and isinstance(assigned, (CountWindow, Global)):
        raise PipelineError(f"{where}: {_KINDS[type(assigned)]} window {name!r} has no lateness; leave it out")
    clock = "" if isinstance(assigned, (CountWindow, Global)) else assigned.clock
    if lateness_ns and clock == "processing":
        raise PipelineError(
            f"{where}: lateness_s uses event time, but window {name!r} uses the wall clock; leave it out"
        )
    return {
        "time_of": end_of if clock == "event" and isinstance(contents, Aggregate) else None,
        "assigner": assigned,
        "lateness_ns": lateness_ns,
        "trigger": trigger,
        "clock_stated": assigned is assigner,
        **delivery_option(where, f"window {name!r}", delivery),
    }


def _assigner(where: str, name: str, argument: object) -> Assigned:
    if isinstance(argument, (Tumbling, Sliding, Session, CountWindow, Global)):
        return argument
    if isinstance(argument, Assigner) and not isinstance(argument, type):
        if clock_of(where, kind_of(argument), argument.clock) == "processing":
            raise PipelineError(
                f"{where}: window {name!r} was given {kind_of(argument)}, which uses the wall clock; only "
                "Tumbling, Sliding and Session can use it"
            )
        return argument
    if isinstance(argument, (int, float)):
        seconds(where, f"window {name!r} has size_s", argument, 0.001)
        return Tumbling(argument, clock="processing")
    raise PipelineError(
        f"{where}: window {name!r} was given {kind_of(argument)}; pass Tumbling(size_s), Sliding(size_s, "
        "every_s), Session(gap_s), CountWindow(n) or Global()"
    )


def _check_trigger(where: str, name: str, assigned: Assigned, trigger: object) -> None:
    if trigger is None:
        return
    if not isinstance(trigger, Trigger):
        raise PipelineError(
            f"{where}: trigger of window {name!r} is {kind_of(trigger)}; use every(n), every_s(seconds), "
            "after_each(), at_end() or an instance of a subclass of Trigger"
        )
    clock_of(where, f"trigger of window {name!r}", trigger.clock)
    check_methods(f"{where}: trigger of window {name!r}", trigger, _TRIGGERING)
    if isinstance(assigned, (Session, CountWindow)):
        raise PipelineError(
            f"{where}: {_KINDS[type(assigned)]} window {name!r} does not accept a trigger; leave it out"
        )
    if assigned.clock == "processing":
        raise PipelineError(
            f"{where}: window {name!r} uses the wall clock and does not accept a trigger; use Global() with "
            'every_s(seconds, clock="processing")'
        )
