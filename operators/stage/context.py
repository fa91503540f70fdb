"""`ctx`, through which an operator accesses its state, the time, random numbers and the outside world (D10).

Each nondeterministic result is logged in live execution, and a replay returns it again. Each operator of a task has one
such object, which is reused for every record, so it is valid only during the call that received it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from numbers import Real
from random import Random
from typing import Any, Protocol
from uuid import UUID

from causal.errors import CausalError, invariant
from causal.ports import Services
from operators.capture.active import RUNNING, Streams
from operators.records.keys import canonical_keys
from operators.records.seconds import LATEST_NS, LATEST_S, ns_of_seconds, seconds_of
from operators.stage.calls import CLOSED, CallFailed, Calls
from operators.stage.event_logger import EventLogger
from operators.state.timers import Timers

__all__ = ["CLOSED", "CallFailed", "Context", "Surroundings"]


_DELAY_MAX_S = 1e8
_OUR_TIMES_S = 1e9
"""A time in 2001; a test clock may begin at 0, so that values below `_DELAY_MAX_S` are times, not delays."""


class Surroundings(Protocol):
    """The interface through which `ctx` accesses the event time, watermark and side outputs of its operator's stage."""

    def event_time_ns(self) -> int | None:
        """Return the event time of the current record or event-time timer, or None if there is none."""
        ...

    def watermark_ns(self) -> int | None:
        """Return the most recent watermark of the operator, or None before the first."""
        ...

    def put_aside(self, tag: str, record: Any) -> None:
        """Add a record to a side output."""
        ...


class Context(Calls):
    """The `ctx` of `process(record, ctx)`.

    Attributes:
        key: the current key; None without key_by.
        state: the checkpointed dict of the current key, which is changed in place; `state.clear()` removes the key's
            state.
        task: the name of the task, for example "count/1".
    """

    __slots__ = (
        "state", "task",
        "_states", "_timers", "_event_timers", "_around", "_logger", "__weakref__",
    )  # fmt: skip

    def __init__(
        self,
        operator: str,
        task: str,
        states: dict[Any, dict[Any, Any]],
        timers: Timers,
        event_timers: Timers,
        around: Surroundings,
    ) -> None:
        super().__init__(operator)
        self.state: dict[Any, Any] = {}
        self.task = task
        self._states = states
        self._timers = timers
        self._event_timers = event_timers
        self._around = around
        self._logger = EventLogger(operator, self._replays)

    # Methods that the stage calls around each event.

    def begin(self, services: Services) -> None:
        """Begin an event whose nondeterministic results come from `services`."""
        self._services = services

    def end(self) -> None:
        """End the event.

        Raises:
            CausalError: a service raised this error during the event, and user code caught it, which is not allowed.
        """
        self._services = CLOSED
        if self._fault is not None:
            raise self._fault

    # Methods for users.

    def now(self) -> float:
        """Return the wall-clock time in seconds; it never decreases, and a replay returns the same times.

        Logs: `clock`: 1 byte and the difference.
        """
        return seconds_of(self.now_ns())

    def now_ns(self) -> int:
        """Return the wall-clock time in nanoseconds, with the same guarantees as `now`.

        Logs: `clock`: 1 byte and the difference.
        """
        try:
            return self._services.now_ns()
        except CausalError as fault:
            self._fault = fault
            raise

    @property
    def replaying(self) -> bool:
        """Whether this event is a replay of an earlier one; use it only for side effects, never for results.

        Logs: –, in an ordered task `run`: 2 bytes.
        """
        return self._services.replaying()

    @property
    def log(self) -> logging.Logger:
        """A logger that is silent in a replay, so that each message appears only once.

        An operator may store the logger, because each message checks whether the current event is a replay.

        Logs: –, in an ordered task `run`: 2 bytes.
        """
        return self._logger

    def _replays(self) -> bool:
        return self._services is not CLOSED and self._services.replaying()

    @property
    def random(self) -> Random:
        """The `random.Random` of this operator, which is seeded again in each epoch; draws are not logged.

        Logs: `random`: 17 bytes per epoch.
        """
        return self._streams().random

    def uuid(self) -> UUID:
        """Return a version-4 UUID; a replay returns the same one. Convert it with `str()` before adding it to a record.

        Logs: as `random`.
        """
        return UUID(int=self._streams().bits.getrandbits(128), version=4)

    def _streams(self) -> Streams:
        """Return the streams that captured calls such as `random.random()` also use; no draw is returned twice."""
        self._services.epoch()  # raises an error outside events
        active = RUNNING.active
        invariant(active is not None, "ctx is used while its chain performs an event", operator=self._operator)
        return active.streams(self._operator)  # type: ignore[union-attr]

    def event_time(self) -> float | None:
        """Return the event time of the current record or event-time timer in seconds, or None if there is none.

        Logs: –.
        """
        return _seconds(self._around.event_time_ns())

    def watermark(self) -> float | None:
        """Return the watermark in seconds, below which no event time will arrive, or None before the first watermark.

        Logs: –.
        """
        return _seconds(self._around.watermark_ns())

    def aside(self, tag: str, record: Any) -> None:
        """Add a record to the side output `tag`; if no `.side(tag)` reads that output, drop and count the record.

        Logs: –.
        """
        self._around.put_aside(tag, record)

    def set_timer(self, at_s: float, name: str = "", clock: str = "processing") -> None:
        """Call `on_timer(name, ctx)` for the current key at `at_s` (in seconds, like `now()`) or soon after.

        Setting a timer with the same name again moves it. Timers fire one at a time, the earliest first; among timers
        with equal times, the one that was set first fires first. A timer in the past fires after the current event.
        With `clock="event"`, a timer fires when the watermark reaches `at_s`, or at the latest when the input ends; if
        `at_s` is before the time of the current record or timer, that time is used instead. Timers of the two clocks
        are independent.

        Logs: `timer`: 1 byte and the difference per firing; nothing with `clock="event"`.

        Raises:
            TypeError: the operator has no `on_timer`, the clock is "event" but there are no watermarks, or an argument
                has the wrong type.
            ValueError: `at_s` is not a time, or is a delay instead of a time, or the clock does not exist.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a timer must be a str, not {type(name).__name__}")
        if type(at_s) is not float:
            _check_seconds(at_s)
        if self._delays(at_s, clock):
            raise ValueError(f"a timer is set to {at_s!r} s since 1970; use ctx.now() + {at_s!r}")
        if not -LATEST_S < at_s < LATEST_S:
            raise ValueError(f"a timer is set to {at_s!r} s; use seconds since 1970, like ctx.now()")
        if clock == "event":
            at_ns, time_ns = ns_of_seconds(at_s), self._around.event_time_ns()
            self._event_timers.set(self.key, name, at_ns if time_ns is None else max(at_ns, time_ns))
        else:
            self._timers_of(clock).set(self.key, name, ns_of_seconds(at_s))

    def _delays(self, at_s: float, clock: str) -> bool:
        """Return whether `at_s` must be a delay; as a time, it would be decades before the current time."""
        return clock == "processing" and 0 < at_s < _DELAY_MAX_S and self.now() > _OUR_TIMES_S

    def clear_timer(self, name: str = "", clock: str = "processing") -> None:
        """Delete the timer `name` of the current key on the clock `clock`, if that timer exists.

        Logs: –.
        """
        self._timers_of(clock).clear(self.key, name)

    def _timers_of(self, clock: str) -> Timers:
        if clock not in ("processing", "event"):
            raise ValueError(f'a timer has clock {clock!r}; use "processing" or "event"')
        return self._event_timers if clock == "event" else self._timers

    def states(self, keys: Sequence[Any]) -> list[dict[Any, Any]]:
        """Return the states of `keys`, for `process_batch(records, keys, ctx)`; only keys of the batch are allowed.

        Logs: –.
        """
        invariant(self._services is not CLOSED, "states are asked for during an event", operator=self._operator)
        states = self._states
        return [states[key] for key in canonical_keys(list(keys))]


def _check_seconds(at_s: object) -> None:
    """Refuse a timer time that is not a number.

    Raises:
        TypeError: `at_s` is not a number; the message explains how to convert it to seconds.
    """
    if isinstance(at_s, Real) and not isinstance(at_s, bool):
        return
    fix = "use seconds since 1970, like ctx.now()"
    if isinstance(at_s, datetime):
        zone = ".replace(tzinfo=UTC)" if at_s.utcoffset() is None else ""
        fix = f"use seconds since 1970: call {zone}.timestamp() on it"
    elif isinstance(at_s, timedelta):
        fix = "use ctx.now() + duration.total_seconds()"
    raise TypeError(f"a timer is set to {at_s!r:.80}, which is of type {type(at_s).__name__}; {fix}")


def _seconds(at_ns: int | None) -> float | None:
    return None if at_ns is None or not abs(at_ns) < LATEST_NS else seconds_of(at_ns)
