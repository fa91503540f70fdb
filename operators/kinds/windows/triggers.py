"""Triggers, which emit a window before its end: after a number of records, periodically, or by a user's rule."""

from __future__ import annotations

from enum import Enum
from typing import Any

from operators import graph
from operators.kinds.windows.assigners import Clock, clock_of, count_of, duration_ns
from operators.kinds.windows.task_windows import Window
from operators.records.seconds import ns_of_seconds, seconds_of


class Firing(Enum):
    """The decision of a trigger."""

    NOTHING = 0
    FIRE = 1
    """Emit the window's result if records have arrived since it was last emitted."""
    PURGE = 2
    """Emit the window's result and empty the window."""


class Trigger:
    """A user's rule for when to emit a window; its results must depend only on the arguments of its methods.

    `state` is a dict that belongs to the window and is checkpointed with it.  Whatever the rule returns, a window
    with an end is emitted at that end if records have arrived since it was last emitted.  Likewise, every window is
    emitted at the end of the input.

    Attributes:
        clock: the clock of `wake_at_s`.
    """

    clock: Clock = "event"

    def on_record(self, state: dict[str, Any], record: Any, window: Window, mark_s: float | None) -> Firing:
        """Return whether to emit the window to which a record has just been added.

        Args:
            mark_s: the time on the trigger's clock: the watermark (None before the first one), or the wall-clock time.
        """
        return Firing.NOTHING

    def wake_at_s(self, state: dict[str, Any], window: Window) -> float | None:
        """Return the time at which to call `on_time`, or None for never; called after every call of another method."""
        return None

    def on_time(self, state: dict[str, Any], window: Window, at_s: float) -> Firing:
        """Return whether to emit the window at the time that `wake_at_s` returned; `at_s` is the clock's time."""
        return Firing.NOTHING


class AtEnd(Trigger):
    """A trigger that fires only at the end of the window."""


class Every(Trigger):
    """A trigger that fires each time `n` records have been added to the window."""

    def __init__(self, n: int, purge: bool) -> None:
        self.n = n
        self._firing = Firing.PURGE if purge else Firing.FIRE

    def on_record(self, state: dict[str, Any], record: Any, window: Window, mark_s: float | None) -> Firing:
        """See `Trigger`."""
        count = state.get("count", 0) + 1
        is_full = count >= self.n  # the count exceeds n if an earlier version of the pipeline had a larger n
        state["count"] = 0 if is_full else count
        return self._firing if is_full else Firing.NOTHING


_NO_WINDOW = Window(0.0, 0.0)


class EverySeconds(Trigger):
    """A trigger that fires each time the clock passes a multiple of `period_s`, for windows with new records."""

    def __init__(self, period_s: float, clock: Clock, purge: bool) -> None:
        self.clock: Clock = clock
        self.period_ns = ns_of_seconds(period_s)
        self._firing = Firing.PURGE if purge else Firing.FIRE

    def on_record(self, state: dict[str, Any], record: Any, window: Window, mark_s: float | None) -> Firing:
        """See `Trigger`."""
        if "at" not in state:
            state["at"] = None if mark_s is None else self._next(mark_s)
        return Firing.NOTHING

    def begin(self, state: dict[str, Any], mark_s: float | None) -> None:
        """Begin with a window that already has new records and previously had another trigger.

        Args:
            mark_s: the event time; with the wall clock, the time is unknown until the trigger is first called.
        """
        if self.clock == "event":
            self.on_record(state, None, _NO_WINDOW, mark_s)
        else:
            state["at"], state["begins"] = None, True

    def wake_at_s(self, state: dict[str, Any], window: Window) -> float | None:
        """See `Trigger`."""
        if "at" not in state:
            return None
        return float("-inf") if state["at"] is None else float(state["at"])

    def on_time(self, state: dict[str, Any], window: Window, at_s: float) -> Firing:
        """See `Trigger`."""
        if state.pop("begins", False):
            state["at"] = self._next(at_s)
            return Firing.NOTHING
        del state["at"]
        return self._firing

    def _next(self, now_s: float) -> float:
        return seconds_of((ns_of_seconds(now_s) // self.period_ns + 1) * self.period_ns)


def described(trigger: Trigger) -> list[Any]:
    """Return the identity of the trigger that window state belongs to; `every` keeps its count when n changes."""
    if isinstance(trigger, EverySeconds):
        return [EverySeconds.__name__, trigger.period_ns, trigger.clock]
    return [type(trigger).__qualname__]


def at_end() -> Trigger:
    """Emit a window only at its end, as without a trigger."""
    return AtEnd()


def every(n: int, purge: bool = False) -> Trigger:
    """Emit a window each time `n` records have been added to it.

    Args:
        purge: whether to empty the window each time, so that each record is emitted only once.
    """
    return Every(count_of(graph.caller(), "trigger every", "n", n), purge)


def every_s(seconds: float, clock: Clock = "event", purge: bool = False) -> Trigger:
    """Emit a window that has new records each time the clock passes a multiple of `seconds`."""
    where = graph.caller()
    duration_ns(where, "trigger every_s", "seconds", seconds)
    return EverySeconds(seconds, clock_of(where, "trigger every_s", clock), purge)


def after_each(purge: bool = False) -> Trigger:
    """Emit a window after each record that is added to it."""
    return Every(1, purge)
