"""The steps of a write at which a process can be stopped or killed, inside the store's own code or between its calls.

A write consists of hundreds of function calls and returns, most of them in code without outside effects. If two steps
that should be atomic are separate, only a handful of calls may lie between them. The checks therefore try all places in
the files that define the store and all calls made from there, up to a limit, and in addition steps that are spread
evenly over the whole write.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from operators.sinks.conformance.dying import forked
from operators.sinks.conformance.subject import Subject, bundle_at, expect

T = TypeVar("T")
Prepared = Callable[[], tuple[object, Callable[[], object]]]
"""Gives a store, whose own code counts, and a call of it that is still to be made."""

PLACES_MAX, SPREAD_MAX = 30, 16
"""The most places in the store's own code, and steps spread evenly, at which a check interrupts a write."""

Place = tuple[str, str, int]
"""An event (a call, a return), the function that it happens to, and the line of the store's own code."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a call.

    With a place, `index` counts the visits to that place; otherwise it counts all steps. Index 0 is the end of the
    call.
    """

    index: int
    place: Place | None = None

    def __str__(self) -> str:
        if self.place is None:
            return f"step {self.index}" if self.index else "its end"
        event, name, line = self.place
        return f"the {event} of {name}, line {line} of the store"


def own_files(store: object) -> frozenset[str]:
    """Return the files that define the store's behaviour, ignoring decorators of its methods."""
    methods = [inspect.unwrap(each) for kind in type(store).__mro__ for each in vars(kind).values() if callable(each)]
    codes = [method.__code__ for method in methods if hasattr(method, "__code__")]
    return frozenset(code.co_filename for code in codes if not code.co_filename.startswith("<"))


def place_of(frame: Any, event: str, argument: Any, own: frozenset[str]) -> Place | None:
    """Return the place of a profile event in one of the store's files, or None if the event happened elsewhere."""
    name = getattr(argument, "__name__", "?") if event.startswith("c_") else frame.f_code.co_name
    for at in (frame, frame.f_back):
        if at is not None and at.f_code.co_filename in own:
            return event.removeprefix("c_"), name, at.f_lineno
        if event.startswith("c_"):
            return None
    return None


def interrupted(store: object, at: Step, act: Callable[[], object], call: Callable[[], object]) -> None:
    """Make the call, and run `act` once if and when the call reaches the given step."""
    own, left = own_files(store), at.index

    def step(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        if left and (at.place is None or at.place == place_of(frame, event, argument, own)):
            left -= 1
            if left == 0:
                act()

    sys.setprofile(step if left else None)
    try:
        call()
    finally:
        sys.setprofile(None)


def killed_at(at: Step, prepared: Prepared) -> None:
    """Fork a process that makes the call and is killed at the given step, or after the call if it ends earlier."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_in_it() -> None:
        store, call = prepared()
        interrupted(store, at, die, call)
        die()

    status = os.waitstatus_to_exitcode(os.waitpid(forked(die_in_it), 0)[1])
    expect(status == -signal.SIGKILL, "a call does not fail on its own", f"status {status} at {at}")


def writing(subject: Subject, incarnation: int) -> Prepared:
    """Return a function that prepares to write the next two rows in the given incarnation."""

    def prepared() -> tuple[object, Callable[[], object]]:
        store, state = subject.opened(incarnation)
        bundle = bundle_at(subject, state, 2, incarnation)
        return store, lambda: store.write(bundle)

    return prepared


def steps_of(prepared: Prepared) -> list[Step]:
    """Return the steps of a call that are worth interrupting, in order; a separate process counts them."""
    receiving, sending = os.pipe()

    def count() -> None:
        total = 0
        times: dict[Place, int] = {}
        places: list[tuple[int, Place]] = []
        store, call = prepared()
        own = own_files(store)

        def step(frame: Any, event: str, argument: Any) -> None:
            nonlocal total
            total += 1
            place = place_of(frame, event, argument, own)
            if place is not None:
                if place not in times:
                    places.append((total, place))
                times[place] = times.get(place, 0) + 1

        sys.setprofile(step)
        call()
        sys.setprofile(None)
        with os.fdopen(sending, "w") as answer:
            json.dump([total - 1, [(at, place, times[place]) for at, place in places]], answer)

    pid = forked(count)
    os.close(sending)
    with os.fdopen(receiving) as answer:
        text = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    expect(status == 0 and text != "", "a forked process can use the store", f"it ended with status {status}")
    total, places = json.loads(text)
    expect(total >= 2, "a call begins and returns", f"{total} steps")
    chosen: list[tuple[int, Step]] = [(at, Step(at)) for at in evenly(range(1, total), SPREAD_MAX)]
    for at, (event, name, line), times in evenly(places, PLACES_MAX):
        place = (event, name, line)
        chosen += [(at, Step(nth, place)) for nth in sorted({1, times})]
    return [step for _, step in sorted(chosen, key=lambda each: each[0])]


def evenly(items: Sequence[T], count: int) -> list[T]:
    """Return at most `count` items, spread evenly, including the first and the last."""
    if len(items) <= count:
        return list(items)
    return [items[number * (len(items) - 1) // (count - 1)] for number in range(count)]
