"""Assigners, which determine a record's windows from its time alone.

Times are in ns, in whole microseconds. A window is identified by its start; its end does not belong to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from causal.errors import PipelineError
from operators import graph
from operators.records.seconds import NS_PER_S, ns_of_seconds
from operators.stage.watermark_merge import END_NS

Clock = Literal["event", "processing"]
_SECONDS_MAX = 1e9
_COUNT_MAX = 1_000_000
_PANES_MAX = 1000
_ALWAYS = (0,)
_PLAIN = (str, bytes, int, float, bool, type(None))
"""The types of attributes that are shown as parameters of a user-defined assigner."""


@runtime_checkable
class Assigner(Protocol):
    """The interface of assigners that assign windows by time; `.window` accepts any assigner that uses event time.

    The results of both methods must depend on their arguments alone, in every process and every replay. A window must
    end after all times in it, and must not end before a window that starts earlier.

    Attributes:
        clock: the clock that the times are from; only Tumbling, Sliding and Session support the wall clock.
    """

    clock: Clock

    def panes(self, times_ns: Sequence[int]) -> list[Sequence[int]]:
        """Return the starts of each time's windows, at least one per time, in ascending order."""
        ...

    def end_ns(self, start_ns: int) -> int:
        """Return the end of the window that starts at `start_ns`."""
        ...


class Tumbling:
    """Windows of `size_s` without gaps or overlap; they start at `offset_s` plus multiples of the size."""

    def __init__(self, size_s: float, offset_s: float = 0.0, clock: Clock = "event") -> None:
        where = graph.caller()
        self.clock: Clock = clock_of(where, "Tumbling", clock)
        self.size_ns = duration_ns(where, "Tumbling", "size_s", size_s)
        self.offset_ns = _offset_ns(where, "Tumbling", offset_s)

    def starts(self, times_ns: Sequence[int]) -> list[int]:
        """Return the start of each time's window."""
        size_ns, offset_ns = self.size_ns, self.offset_ns
        return [time_ns - (time_ns - offset_ns) % size_ns for time_ns in times_ns]

    def panes(self, times_ns: Sequence[int]) -> list[Sequence[int]]:
        """See `Assigner`."""
        return [(start_ns,) for start_ns in self.starts(times_ns)]

    def end_ns(self, start_ns: int) -> int:
        """See `Assigner`."""
        return start_ns + self.size_ns


class Sliding:
    """Windows of `size_s` that start every `every_s`; a record belongs to about `size_s / every_s` windows."""

    def __init__(self, size_s: float, every_s: float, offset_s: float = 0.0, clock: Clock = "event") -> None:
        where = graph.caller()
        self.clock: Clock = clock_of(where, "Sliding", clock)
        self.size_ns = duration_ns(where, "Sliding", "size_s", size_s)
        self.every_ns = duration_ns(where, "Sliding", "every_s", every_s)
        self.offset_ns = _offset_ns(where, "Sliding", offset_s)
        if self.every_ns > self.size_ns:
            raise PipelineError(
                f"{where}: every_s {every_s} of a Sliding window exceeds its size_s {size_s}, so some records "
                "would be in no window; lower every_s"
            )
        if self.size_ns > _PANES_MAX * self.every_ns:
            raise PipelineError(
                f"{where}: a Sliding window of size_s {size_s} and every_s {every_s} puts each record in "
                f"{self.size_ns // self.every_ns} windows, but the limit is {_PANES_MAX}; use a larger every_s"
            )
        if self.clock == "processing" and self.size_ns % self.every_ns:
            raise PipelineError(
                f"{where}: size_s {size_s} of a Sliding window by the wall clock is not a multiple of its "
                f"every_s {every_s}; make size_s a multiple of every_s"
            )

    def panes(self, times_ns: Sequence[int]) -> list[Sequence[int]]:
        """See `Assigner`."""
        every_ns, size_ns = self.every_ns, self.size_ns
        # The starts are those above `time - size`, up to and including the time.
        back_ns = size_ns - every_ns
        reach_ns = size_ns + self.offset_ns
        return [
            range(time_ns - back_ns - (time_ns - reach_ns) % every_ns, time_ns + 1, every_ns) for time_ns in times_ns
        ]

    def end_ns(self, start_ns: int) -> int:
        """See `Assigner`."""
        return start_ns + self.size_ns


class Session:
    """One window per period of activity, ending `gap_s` after its last record; a record at that end opens another."""

    def __init__(self, gap_s: float, clock: Clock = "event") -> None:
        where = graph.caller()
        self.clock: Clock = clock_of(where, "Session", clock)
        self.gap_ns = duration_ns(where, "Session", "gap_s", gap_s)


class CountWindow:
    """The last `n` records of a key, emitted after every `every` records (by default `n`: one window per record)."""

    def __init__(self, n: int, every: int | None = None) -> None:
        where = graph.caller()
        self.n = count_of(where, "CountWindow", "n", n)
        self.every = self.n if every is None else count_of(where, "CountWindow", "every", every)
        if self.every > self.n:
            raise PipelineError(
                f"{where}: every {every} of a CountWindow exceeds its n {n}, so some records would be in no "
                "window; lower every"
            )


class Global:
    """One window per key that never ends; it is emitted when its trigger fires and at the end of the input."""

    clock: Clock = "event"

    def panes(self, times_ns: Sequence[int]) -> list[Sequence[int]]:
        """See `Assigner`."""
        return [_ALWAYS] * len(times_ns)

    def end_ns(self, start_ns: int) -> int:
        """See `Assigner`."""
        return END_NS


Assigned = Assigner | Session | CountWindow
"""The type of `.window`'s argument; Tumbling, Sliding and Global are assigners."""


def described(assigner: Assigned) -> str:
    """Return an assigner with its parameters, as errors show it; for a user-defined one, show only plain values."""
    kind = type(assigner)
    if kind.__module__ != __name__:
        values = getattr(assigner, "__dict__", {})
        parts = [f"{name}={value!r}" for name, value in sorted(values.items()) if isinstance(value, _PLAIN)]
        return f"{kind.__name__}({', '.join(parts)})" if parts else kind.__name__
    parts = [
        f"{name.removesuffix('_ns')}_s={shown_seconds(value)}" if name.endswith("_ns") else f"{name}={value!r}"
        for name, value in vars(assigner).items()
    ]
    return f"{kind.__name__}({', '.join(parts)})"


def shown_seconds(value_ns: int) -> str:
    """Return the exact duration in seconds."""
    return repr(value_ns / NS_PER_S).removesuffix(".0")


def clock_of(where: str, what: str, clock: object) -> Clock:
    """Return `clock`.

    Raises:
        PipelineError: `clock` is not the name of a clock.
    """
    if clock == "event":
        return "event"
    if clock == "processing":
        return "processing"
    raise PipelineError(f"{where}: {what} has clock {clock!r}; use 'event' or 'processing'")


def duration_ns(where: str, what: str, name: str, value: object) -> int:
    """Convert a duration in seconds to ns, rounded to a microsecond.

    Raises:
        PipelineError: the value is shorter than a millisecond, or not a duration.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.001 <= value <= _SECONDS_MAX:
        raise PipelineError(f"{where}: {what} has {name} {value!r}; use seconds, at least 0.001")
    return ns_of_seconds(value)


def count_of(where: str, what: str, name: str, value: object) -> int:
    """Return a number of records.

    Raises:
        PipelineError: the value is not a whole number, or is more than a window can contain.
    """
    if type(value) is not int or not 1 <= value <= _COUNT_MAX:
        raise PipelineError(f"{where}: {what} has {name} {value!r}; use a whole number from 1 to {_COUNT_MAX}")
    return value


def _offset_ns(where: str, what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_SECONDS_MAX <= value <= _SECONDS_MAX:
        raise PipelineError(f"{where}: {what} has offset_s {value!r}; use seconds")
    return ns_of_seconds(value)
