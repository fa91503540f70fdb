"""Replacements for the standard library's wall clock; inside an operator, they use the logged `ctx.now_ns()`.

The clocks for durations (`time.monotonic`, `time.perf_counter`) are not replaced, because locks and queues depend on
them.
"""

from __future__ import annotations

import ctypes
import datetime as datetimes
import gc
import time
from collections.abc import Callable
from typing import Any

from operators.capture.active import RUNNING, inside
from operators.capture.replacing import Replacement
from operators.records.seconds import seconds_of

REMEDY = "use ctx.now()"


def of_time() -> list[Replacement]:
    """Return replacements for the functions of module `time`; calls that pass a time are not affected."""
    return [
        Replacement(time, "time", time.time, _seconds(time.time)),
        Replacement(time, "time_ns", time.time_ns, _nanoseconds(time.time_ns)),
        Replacement(
            time, "clock_gettime", time.clock_gettime, _of_clock(time.clock_gettime, "clock_gettime", seconds_of)
        ),
        Replacement(
            time, "clock_gettime_ns", time.clock_gettime_ns, _of_clock(time.clock_gettime_ns, "clock_gettime_ns", int)
        ),
        Replacement(time, "gmtime", time.gmtime, _broken_down(time.gmtime, "gmtime")),
        Replacement(time, "localtime", time.localtime, _broken_down(time.localtime, "localtime")),
        Replacement(time, "ctime", time.ctime, _broken_down(time.ctime, "ctime")),
        Replacement(time, "asctime", time.asctime, _formatted(time.asctime, "asctime", 0)),
        Replacement(time, "strftime", time.strftime, _formatted(time.strftime, "strftime", 1)),
    ]


def _seconds(real: Callable[[], float]) -> Callable[[], float]:
    def now() -> float:
        active = RUNNING.active and inside("time.time()", REMEDY)
        return real() if active is None else seconds_of(active.now_ns())

    return now


def _nanoseconds(real: Callable[[], int]) -> Callable[[], int]:
    def now_ns() -> int:
        active = RUNNING.active and inside("time.time_ns()", REMEDY)
        return real() if active is None else active.now_ns()

    return now_ns


def _of_clock(real: Callable[[int], Any], name: str, convert: Callable[[int], float]) -> Callable[[int], Any]:
    def gettime(clock: int) -> Any:
        if clock != time.CLOCK_REALTIME:
            return real(clock)
        active = RUNNING.active and inside(f"time.{name}()", REMEDY)
        if active is None:
            return real(clock)
        return convert(active.now_ns())

    return gettime


def _broken_down(real: Callable[..., Any], name: str) -> Callable[..., Any]:
    def at(seconds: float | None = None, /) -> Any:
        if seconds is None:
            active = RUNNING.active and inside(f"time.{name}()", REMEDY)
            if active is not None:
                seconds = active.now_ns() // 1_000_000_000
        return real(seconds)

    return at


def _formatted(real: Callable[..., str], name: str, place: int) -> Callable[..., str]:
    local = time.localtime

    def text(*args: Any) -> str:
        if len(args) == place:
            active = RUNNING.active and inside(f"time.{name}()", REMEDY)
            if active is not None:
                return real(*args, local(active.now_ns() // 1_000_000_000))
        return real(*args)

    return text


def of_datetime() -> list[Replacement]:
    """Patch `now`, `utcnow` and `today` in the types themselves, which all importing modules share.

    Returns: an empty list if the types could be patched; otherwise replacement classes for the types.
    """
    date, moment = datetimes.date, datetimes.datetime
    methods = {date: {"today": _today(date)}, moment: {"now": _now(), "utcnow": _utcnow(), "today": _today(moment)}}
    if all(_put(kind, named) for kind, named in methods.items()):
        return []
    return [Replacement(datetimes, kind.__name__, kind, in_place_of(kind, methods[kind])) for kind in (date, moment)]


def _put(kind: type, named: dict[str, Any]) -> bool:
    """Add methods to a built-in type, and return whether attribute lookups on the type then find them."""
    names: dict[str, Any] | None = next((each for each in gc.get_referents(vars(kind)) if type(each) is dict), None)
    if names is None:
        return False
    names.update(named)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    return all(getattr(getattr(kind, name), "__func__", None) is method.__func__ for name, method in named.items())


def in_place_of(kind: type, named: dict[str, Any]) -> type:
    """Return a class with these methods that creates instances of `kind` and accepts all of them as its own."""

    class _Meta(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, kind) if cls is stand_in else type.__instancecheck__(cls, instance)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, kind) if cls is stand_in else type.__subclasscheck__(cls, other)

    def make(cls: type, *args: Any, **kwargs: Any) -> Any:
        return kind.__new__(kind if cls is stand_in else cls, *args, **kwargs)

    stand_in = _Meta(kind.__name__, (kind,), {"__new__": make, "__slots__": (), **named})
    return stand_in


def _now() -> Any:
    real = datetimes.datetime.__dict__["now"]

    def now(cls: Any, tz: datetimes.tzinfo | None = None) -> Any:
        """Return the current time, in time zone `tz` if it is not None; inside an operator, use `ctx.now()`."""
        active = RUNNING.active and inside("datetime.now()", REMEDY)
        if active is None:
            return real.__get__(None, cls)(tz)
        return cls.fromtimestamp(seconds_of(active.now_ns()), tz)

    return classmethod(now)


def _utcnow() -> Any:
    real = datetimes.datetime.__dict__["utcnow"]

    def utcnow(cls: Any) -> Any:
        """Return the current UTC time as a naive datetime; inside an operator, return the time of `ctx.now()`."""
        active = RUNNING.active and inside("datetime.utcnow()", REMEDY)
        if active is None:
            return real.__get__(None, cls)()
        return cls.fromtimestamp(seconds_of(active.now_ns()), datetimes.UTC).replace(tzinfo=None)

    return classmethod(utcnow)


def _today(kind: type) -> Any:
    real = datetimes.date.__dict__["today"]

    def today(cls: Any) -> Any:
        """Return the current date or local time; inside an operator, use the time of `ctx.now()`."""
        active = RUNNING.active and inside(f"{kind.__name__}.today()", REMEDY)
        if active is None:
            return real.__get__(None, cls)()
        return cls.fromtimestamp(seconds_of(active.now_ns()))

    return classmethod(today)
