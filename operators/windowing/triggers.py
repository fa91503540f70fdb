"""When a window is told before its end: after so many records, every so often, or as the user's own rule says."""

from __future__ import annotations

from enum import Enum
from typing import Any

from operators import graph
from operators.seconds import ns_of_seconds, seconds_of
from operators.windowing.assigners import Clock, clock_of, count_of, duration_ns
from operators.windows import Window


class Firing(Enum):
    """What a trigger answers."""

    NOTHING = 0
    FIRE = 1
    """Tell what the window holds, if something has come since it was told."""
    PURGE = 2
    """Tell it, and go on with an empty window."""


class Trigger:
    """The user's own rule; it must depend on nothing but what it is given.

    `state` is a dict of the window, checkpointed with it.  A window that has an end is told there whatever the rule
    says, if something has come since it was told last; so is every window at the end of the input.

    Attributes:
        clock: what `wake_at_s` goes by.
    """

    clock: Clock = "event"

    def on_record(self, state: dict[str, Any], record: Any, window: Window, mark_s: float | None) -> Firing:
        """A record was put into the window.

        Args:
            mark_s: how far the clock has come: the watermark, None before the first; or the wall clock.
        """
        return Firing.NOTHING

    def wake_at_s(self, state: dict[str, Any], window: Window) -> float | None:
        """When `on_time` is to be called; asked after each call of the others, None for never."""
        return None

    def on_time(self, state: dict[str, Any], window: Window, at_s: float) -> Firing:
        """The clock has reached what `wake_at_s` told; `at_s` is how far it has come."""
        return Firing.NOTHING


class AtEnd(Trigger):
    """At the end of the window, and then only."""


class Every(Trigger):
    """Each time that `n` records have come into the window."""

    def __init__(self, n: int, purge: bool) -> None:
        self.n = n
        self._firing = Firing.PURGE if purge else Firing.FIRE

    def on_record(self, state: dict[str, Any], record: Any, window: Window, mark_s: float | None) -> Firing:
        """See `Trigger`."""
        count = state.get("count", 0) + 1
        state["count"] = 0 if count == self.n else count
        return self._firing if count == self.n else Firing.NOTHING


class EverySeconds(Trigger):
    """Each time that the clock passes a multiple of `period_s`, for windows that something has come into since."""

    def __init__(self, period_s: float, clock: Clock, purge: bool) -> None:
        self.clock = clock
        self._period_ns = ns_of_seconds(period_s)
        self._firing = Firing.PURGE if purge else Firing.FIRE

    def on_record(self, state: dict[str, Any], record: Any, window: Window, mark_s: float | None) -> Firing:
        """See `Trigger`."""
        if "at" not in state:
            state["at"] = None if mark_s is None else self._next(mark_s)
        return Firing.NOTHING

    def wake_at_s(self, state: dict[str, Any], window: Window) -> float | None:
        """See `Trigger`."""
        if "at" not in state:
            return None
        return float("-inf") if state["at"] is None else float(state["at"])

    def on_time(self, state: dict[str, Any], window: Window, at_s: float) -> Firing:
        """See `Trigger`."""
        del state["at"]
        return self._firing

    def _next(self, now_s: float) -> float:
        return seconds_of((ns_of_seconds(now_s) // self._period_ns + 1) * self._period_ns)


def at_end() -> Trigger:
    """Tell a window at its end; what happens without a trigger."""
    return AtEnd()


def every(n: int, purge: bool = False) -> Trigger:
    """Tell a window each time that `n` records have come into it.

    Args:
        purge: tell each record once: the window goes on empty.
    """
    return Every(count_of(graph.caller(), "trigger every", "n", n), purge)


def every_s(seconds: float, clock: Clock = "event", purge: bool = False) -> Trigger:
    """Tell a window into which something has come each time that the clock passes a multiple of `seconds`."""
    where = graph.caller()
    duration_ns(where, "trigger every_s", "seconds", seconds)
    return EverySeconds(seconds, clock_of(where, "trigger every_s", clock), purge)


def after_each(purge: bool = False) -> Trigger:
    """Tell a window after each record that comes into it."""
    return Every(1, purge)
