"""`ctx`: how an operator asks for its state, the time, chance and the outside world (D10).

Each answer is recorded when it is live and given again in a replay.  One object per operator and
task, used for every record in turn: it is valid only during the call that it was given to.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import Random
from typing import Any, Protocol
from uuid import UUID

from causal.errors import CausalError, invariant
from causal.ports import Services
from operators.calls import CLOSED, CallFailed, Calls
from operators.capture.scope import RUNNING, Streams
from operators.keys import canonical_keys
from operators.seconds import LATEST_NS, LATEST_S, ns_of_seconds, seconds_of
from operators.timers import Timers

__all__ = ["CLOSED", "CallFailed", "Context", "Surroundings"]


class Surroundings(Protocol):
    """What the stage that an operator runs in knows of time, and of who reads its side outputs."""

    def event_time_ns(self) -> int | None:
        """Of the record, or the event-time timer, that is being worked on."""
        ...

    def watermark_ns(self) -> int | None:
        """The last watermark that the operator was told."""
        ...

    def put_aside(self, tag: str, record: Any) -> None:
        """Give a record to a side output."""
        ...


class Context(Calls):
    """What `process(record, ctx)` is given.

    Attributes:
        key: the current key; None without key_by.
        state: dict of the current key, checkpointed; change it in place.
        task: for example "count/1".
    """

    __slots__ = (
        "state", "task",
        "_states", "_timers", "_event_timers", "_around", "_logs",
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
        muted = logging.Logger("muted")
        muted.disabled = True
        self._logs = (logging.getLogger(f"operators.{operator}"), muted)

    # Bound by the chain around each event.

    def begin(self, services: Services) -> None:
        """An event begins: answers come from `services`."""
        self._services = services

    def end(self) -> None:
        """The event is over.

        Raises:
            CausalError: what a service raised and user code caught: it was never theirs.
        """
        self._services = CLOSED
        if self._fault is not None:
            raise self._fault

    # For users.

    def now(self) -> float:
        """Wall-clock time in seconds; the same in a replay."""
        return seconds_of(self.now_ns())

    def now_ns(self) -> int:
        """Wall-clock time in ns; the same in a replay."""
        try:
            return self._services.now_ns()
        except CausalError as fault:
            self._fault = fault
            raise

    @property
    def replaying(self) -> bool:
        """Whether this execution repeats one that was lost; for effects on the side only, never for results."""
        return self._services.replaying()

    @property
    def log(self) -> logging.Logger:
        """A logger that is silent in a replay, so that each message is seen once."""
        live, muted = self._logs
        return muted if self._services is not CLOSED and self._services.replaying() else live

    @property
    def random(self) -> Random:
        """This operator's own stream of chance, new in each epoch; draws cost nothing in the log."""
        return self._streams().random

    def uuid(self) -> UUID:
        """A version-4 UUID; the same in a replay.  `str()` it to put it into a record."""
        return UUID(int=self._streams().bits.getrandbits(128), version=4)

    def _streams(self) -> Streams:
        """Shared with `random.random()` and the like in the same operator: one draw is never given twice."""
        self._services.epoch()  # refuses where there is no event
        active = RUNNING.active
        invariant(active is not None, "ctx is used while its chain performs an event", operator=self._operator)
        return active.streams(self._operator)  # type: ignore[union-attr]

    def event_time(self) -> float | None:
        """Seconds: the event time of the current record, or of the event-time timer that fires; None without one."""
        return _seconds(self._around.event_time_ns())

    def watermark(self) -> float | None:
        """Seconds: no record with a smaller event time will come; None before the first watermark."""
        return _seconds(self._around.watermark_ns())

    def aside(self, tag: str, record: Any) -> None:
        """Give a record to the side output `tag`, which `.side(tag)` reads; nobody gets it when none does."""
        self._around.put_aside(tag, record)

    def set_timer(self, at_s: float, name: str = "", clock: str = "processing") -> None:
        """Have `on_timer(name, ctx)` called for the current key at `at_s` (seconds, as `now()` counts) or soon after.

        Setting it again moves it.  Timers fire one by one, the earliest first, at equal times the one that was set
        first.  A time that has passed fires after the current event.  With `clock="event"` it is called when the
        watermark reaches `at_s`, at the latest when the input ends; a time before that of the record or timer which
        is worked on means that time.  Timers of the two clocks do not know of one another.

        Raises:
            TypeError: the operator has no `on_timer`, or the arguments have other types.
            ValueError: `at_s` is no time, or there is no such clock.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a timer is a str, not {type(name).__name__}")
        if not -LATEST_S < at_s < LATEST_S:
            raise ValueError(f"a timer at {at_s!r} s: give seconds since 1970, as ctx.now() does")
        if clock == "event":
            at_ns, time_ns = ns_of_seconds(at_s), self._around.event_time_ns()
            self._event_timers.set(self.key, name, at_ns if time_ns is None else max(at_ns, time_ns))
        else:
            self._timers_of(clock).set(self.key, name, ns_of_seconds(at_s))

    def clear_timer(self, name: str = "", clock: str = "processing") -> None:
        """Forget the current key's timer `name` of that clock; nothing happens when there is none."""
        self._timers_of(clock).clear(self.key, name)

    def _timers_of(self, clock: str) -> Timers:
        if clock not in ("processing", "event"):
            raise ValueError(f'a timer by the clock {clock!r}; give "processing" or "event"')
        return self._event_timers if clock == "event" else self._timers

    def states(self, keys: Sequence[Any]) -> list[dict[Any, Any]]:
        """The states of `keys`, for `process_batch(records, keys, ctx)`; only keys that it was given."""
        invariant(self._services is not CLOSED, "states are asked for during an event", operator=self._operator)
        states = self._states
        return [states[key] for key in canonical_keys(list(keys))]


def _seconds(at_ns: int | None) -> float | None:
    return None if at_ns is None or not abs(at_ns) < LATEST_NS else seconds_of(at_ns)
