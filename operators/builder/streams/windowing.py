"""`window`: results over finite parts of a stream, by time or by number of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, overload

from causal.errors import PipelineError
from operators import graph
from operators.builder.streams.stream_base import HasKey, K, StreamBase, T, U, kind_of
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

if TYPE_CHECKING:
    from operators.builder.streams.stream import Stream
    from operators.kinds.windows.task_windows import Window

_KINDS = {Session: "session", CountWindow: "count", Global: "global"}
"""The kinds that accept no lateness, or no trigger."""
_TRIGGERING = {
    "on_record": ("state", "record", "window", "mark_s"),
    "wake_at_s": ("state", "window"),
    "on_time": ("state", "window", "at_s"),
}
"""The methods of a trigger, and their parameters."""


def end_of(result: Any) -> Any:
    """Return the event time of `(key, value, start, end)`: one microsecond before the end of the window."""
    return result[3] - 1e-6


class Windowing(StreamBase[T]):
    """The method `window`."""

    @overload
    def window(
        self: HasKey[K],
        name: str,
        assigner: Assigned | float,
        contents: Aggregate[T, Any],
        parallelism: int | None = None,
        *,
        trigger: Trigger | None = None,
        lateness_s: float = 0.0,
        delivery: str = "arrival",
    ) -> Stream[tuple[K, Any, float, float]]: ...

    @overload
    def window(
        self: HasKey[K],
        name: str,
        assigner: Assigned | float,
        contents: Callable[[K, list[T], Window], Iterable[U] | None],
        parallelism: int | None = None,
        *,
        trigger: Trigger | None = None,
        lateness_s: float = 0.0,
        delivery: str = "arrival",
    ) -> Stream[U]: ...

    @overload
    def window(
        self,
        name: str,
        assigner: float,
        contents: Callable[[Any, Window], Any],
        parallelism: int | None = None,
    ) -> Stream[Any]: ...

    def window(
        self,
        name: str,
        assigner: Assigned | float,
        contents: Aggregate[T, Any] | Callable[..., Any],
        parallelism: int | None = None,
        *,
        trigger: Trigger | None = None,
        lateness_s: float = 0.0,
        delivery: str = "arrival",
    ) -> Stream[Any]:
        """Emit the result of each window, per key after key_by, otherwise per task: `(key, value, start, end)` for an
        aggregate, or the records that a function of `(key, records, window)` returns.

        Logs with `Tumbling` or `Sliding` and `clock="processing"`, or a number: `clock`, `timer`, `window`: 14 bytes
        per window or firing, and task.
        Logs with `Session` and `clock="processing"`, or `every_s(s, clock="processing")`: `clock`, `timer`: 2 to 5
        bytes per event, and per closing or firing.
        State: open windows.

        `start` and `end` are in seconds; the end is not part of the window. For count and global windows they are
        record numbers within the key.

        Args:
            assigner: Tumbling, Sliding, Session, CountWindow or Global; an object with the methods of
                `operators.kinds.windows.assigners.Assigner`; or a number of seconds for tumbling windows of wall-clock
                time. For vectors it must be such a number, and `contents(batch, window)` returns a batch, once for all
                keys of a task.
            trigger: when to emit a window in addition to its end; not for Session, CountWindow and wall-clock windows.
            lateness_s: how long to keep a window after its end. A record that arrives within this time causes the
                window to be emitted again; a later record goes to `.side("late")`.
            delivery: as for `process`.
        """
        where = graph.caller()
        assigned = self._assigner(where, name, assigner)
        if isinstance(contents, type) and issubclass(contents, Aggregate):
            raise PipelineError(f"{where}: window {name!r} is given {kind_of(contents)}; give {contents.__name__}(...)")
        if not isinstance(contents, Aggregate):
            parameters = ("batch", "window") if self._vectors else ("key", "records", "window")
            self._callable(where, f"window {name!r}", contents, parameters, generates=not self._vectors)
        if self._vectors and (isinstance(contents, Aggregate) or not isinstance(assigner, (int, float))):
            raise PipelineError(
                f"{where}: window {name!r} on vectors takes a number of seconds and a function of (batch, window); "
                "put .to_rows(name) before it for any other"
            )
        if isinstance(assigned, Session) and isinstance(contents, Aggregate) and contents.merge is None:
            raise PipelineError(
                f"{where}: session window {name!r} aggregates without merge; give Aggregate(..., merge=fn)"
            )
        _check_trigger(where, name, assigned, trigger)
        lateness_ns = self._seconds(where, f"window {name!r} has lateness_s", lateness_s, 0)
        if lateness_ns and isinstance(assigned, (CountWindow, Global)):
            raise PipelineError(f"{where}: {_KINDS[type(assigned)]} window {name!r} has no lateness; leave it out")
        clock = "" if isinstance(assigned, (CountWindow, Global)) else assigned.clock
        if lateness_ns and clock == "processing":
            raise PipelineError(f"{where}: lateness_s counts event time, window {name!r} uses the wall clock")
        time_of = end_of if clock == "event" and isinstance(contents, Aggregate) else None
        options: dict[str, Any] = {"assigner": assigned, "lateness_ns": lateness_ns, "trigger": trigger}
        options["clock_stated"] = assigned is assigner
        options |= self._delivery(where, f"window {name!r}", delivery)
        return self._node(where, name, "window", contents, parallelism, time_of=time_of, **options)

    def _assigner(self, where: str, name: str, argument: object) -> Assigned:
        if isinstance(argument, (Tumbling, Sliding, Session, CountWindow, Global)):
            return argument
        if isinstance(argument, Assigner) and not isinstance(argument, type):
            if clock_of(where, kind_of(argument), argument.clock) == "processing":
                raise PipelineError(
                    f"{where}: window {name!r} is given {kind_of(argument)}, which uses the wall clock; Tumbling, "
                    "Sliding and Session can"
                )
            return argument
        if isinstance(argument, (int, float)):
            self._seconds(where, f"window {name!r} has size_s", argument, 0.001)
            return Tumbling(argument, clock="processing")
        raise PipelineError(
            f"{where}: window {name!r} is given {kind_of(argument)}; give Tumbling(size_s), Sliding(size_s, every_s), "
            "Session(gap_s), CountWindow(n) or Global()"
        )


def _check_trigger(where: str, name: str, assigned: Assigned, trigger: object) -> None:
    if trigger is None:
        return
    if not isinstance(trigger, Trigger):
        raise PipelineError(
            f"{where}: trigger of window {name!r} is {kind_of(trigger)}; give every(n), every_s(seconds), "
            "after_each(), at_end() or an instance of a subclass of Trigger"
        )
    clock_of(where, f"trigger of window {name!r}", trigger.clock)
    check_methods(f"{where}: trigger of window {name!r}", trigger, _TRIGGERING)
    if isinstance(assigned, (Session, CountWindow)):
        raise PipelineError(f"{where}: {_KINDS[type(assigned)]} window {name!r} takes no trigger; leave it out")
    if assigned.clock == "processing":
        raise PipelineError(
            f"{where}: window {name!r} uses the wall clock and takes no trigger; use Global() with "
            'every_s(seconds, clock="processing")'
        )
