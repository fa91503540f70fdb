"""A process that is patched as a worker is, and reports what each spelling of clock and chance then gives.

    python -m tests.unit.operators.spellings capture|refuse|fallback

Prints JSON.  Package `early` was imported before the patch, package `late` is imported after it.
"""

from __future__ import annotations

import copy
import datetime
import gc
import json
import logging
import os
import random
import secrets
import sys
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import early  # type: ignore[import-not-found]  # made by the test

from causal.process.clock import SystemEnvironment
from operators.capture import clock, install
from operators.capture.active import RUNNING, Active, HiddenNondeterminism
from tests.unit.operators.scene import Services

# By no module's name, so that nothing can be put in their place.


class Mine(random.Random):
    """A generator of a user, without a seed or with one."""


class Loaded(random.Random):
    """Draws are its own, made of those of its base."""

    def random(self) -> float:
        return super().random() ** 2


def generators() -> dict[str, random.Random]:
    return {
        "unseeded": random.Random(), "seeded": random.Random(1), "of a class": Mine(), "of a class, seeded": Mine(1),
        "loaded": Loaded(), "loaded, seeded": Loaded(1), "of the system": random.SystemRandom(),
    }  # fmt: skip


OUTSIDE_BEFORE = generators()
TAKEN_BEFORE = {"randint": [partial(random.randint, 1, 1 << 60)]}


def shuffled(numbers: list[int]) -> list[int]:
    random.shuffle(numbers)
    return numbers


ASKING: dict[str, Callable[[], Any]] = {
    "time.time()": lambda: time.time(),
    "time.time_ns()": lambda: time.time_ns(),
    "time.clock_gettime()": lambda: time.clock_gettime(time.CLOCK_REALTIME),
    "time.clock_gettime_ns()": lambda: time.clock_gettime_ns(time.CLOCK_REALTIME),
    "time.gmtime()": lambda: time.gmtime(),
    "time.localtime()": lambda: time.localtime(),
    "time.ctime()": lambda: time.ctime(),
    "time.asctime()": lambda: time.asctime(),
    "time.strftime()": lambda: time.strftime("%H:%M:%S"),
    "datetime.now()": lambda: datetime.datetime.now(datetime.UTC),
    "datetime.utcnow()": lambda: datetime.datetime.utcnow(),
    "datetime.today()": lambda: datetime.datetime.today(),
    "date.today()": lambda: datetime.date.today(),
    **{f"random.{name}()": draw for name, draw in {
        "random": lambda: random.random(),
        "randint": lambda: random.randint(1, 1 << 60),
        "randrange": lambda: random.randrange(1 << 60),
        "uniform": lambda: random.uniform(0, 1),
        "choice": lambda: random.choice(range(1 << 60)),
        "choices": lambda: random.choices(range(1 << 60), k=3),
        "sample": lambda: random.sample(range(1 << 40), 3),
        "shuffle": lambda: shuffled(list(range(30))),
        "gauss": lambda: random.gauss(0, 1),
        "getrandbits": lambda: random.getrandbits(64),
        "randbytes": lambda: random.randbytes(8),
    }.items()},
    "random.Random() without a seed": lambda: random.Random().random(),
    "os.urandom()": lambda: os.urandom(8),
    "os.getrandom()": lambda: os.getrandom(8),
    "uuid.uuid1()": lambda: uuid.uuid1(),
    "uuid.uuid4()": lambda: uuid.uuid4(),
    "secrets.token_bytes()": lambda: secrets.token_bytes(8),
    "secrets.token_hex()": lambda: secrets.token_hex(),
    "secrets.token_urlsafe()": lambda: secrets.token_urlsafe(),
    "secrets.randbits()": lambda: secrets.randbits(64),
    "secrets.randbelow()": lambda: secrets.randbelow(1 << 60),
    "secrets.choice()": lambda: secrets.choice(range(1 << 60)),
}  # fmt: skip
"""The spellings that are captured, by the name that a refusal uses."""

DETERMINED: dict[str, Callable[[], Any]] = {
    "gmtime": lambda: time.gmtime(5)[:6],
    "strftime": lambda: time.strftime("%H", (2000, 1, 1, 7, 0, 0, 0, 1, 0)),
    "fromtimestamp": lambda: datetime.datetime.fromtimestamp(5, datetime.UTC),
    "seeded": lambda: random.Random(4).random(),
    "monotonic": lambda: time.monotonic() > 0,
    "uuid5": lambda: uuid.uuid5(uuid.NAMESPACE_URL, "x"),
}
"""Calls with an explicit time or seed, which read neither clock nor chance."""


def perform(ask: Callable[[], Any], **of_event: Any) -> Any:
    """Call `ask` in an operator of a task whose services always begin with the same answers."""
    active = Active("count/0")
    active.begin(Services())
    active.operator = "count"
    for name, value in of_event.items():
        setattr(active, name, value)
    try:
        return ask()
    finally:
        active.fault = None
        active.end()


def refusal(ask: Callable[[], Any], **of_event: Any) -> str:
    try:
        perform(ask, **of_event)
    except HiddenNondeterminism as problem:
        return str(problem)
    return "was not refused"


def elsewhere() -> bool:
    """Return whether another thread gets the real time while an operator runs."""
    readings: list[float] = []
    thread = threading.Thread(target=lambda: readings.append(time.time()))
    thread.start()
    thread.join()
    return readings[0] > 1_600_000_000


def outside() -> bool:
    """Return whether a function of `ctx.call` gets the real time, and the operator its own again after it."""
    with RUNNING.suspended():
        now_s = time.time()
    try:
        return now_s > 1_600_000_000 > time.time()
    except HiddenNondeterminism:
        return now_s > 1_600_000_000


def lazily() -> list[str]:
    import late  # type: ignore[import-not-found]

    return [*late.everything(), repr(late.AT_IMPORT > 1_600_000_000)]


def caught() -> str:
    """Return the error that ends an event whose operator caught the refusal."""
    active = Active("count/0")
    active.begin(Services())
    active.operator = "count"
    try:
        time.time()
    except HiddenNondeterminism:
        active.operator = ""
    try:
        active.end()
    except HiddenNondeterminism as problem:
        return str(problem)
    return "the operator got away with it"


def logged() -> bool:
    """Return whether a log line, and the name of a temporary file, leave the operator's streams and clock alone."""

    def ask() -> Any:
        record = logging.LogRecord("x", logging.INFO, "x", 1, "x", None, None)
        with tempfile.TemporaryDirectory():
            return record.created > 1_600_000_000, random.random(), time.time()

    first, second = perform(ask), perform(ask)
    plain = perform(lambda: (True, random.random(), time.time()))
    return bool(first == second == plain)


def drawn_from(name: str) -> list[Any]:
    return drawn(generators()[name])


def drawn(generator: random.Random) -> list[Any]:
    return [generator.random(), generator.getrandbits(64), generator.gauss(0, 1), generator.choice(range(1 << 60))]


def finalised() -> dict[str, Any]:
    """Return what finalisers get that the collector runs inside an operator, and one that the operator runs."""
    seen: list[float] = []

    class Watching:
        def __init__(self) -> None:
            self.me = self
            weakref.finalize(self, lambda: seen.append(time.time()))

        def __del__(self) -> None:
            seen.append(time.time())

    def collected() -> float:
        Watching()
        gc.collect()
        return time.time()

    def released() -> float:
        watching = Watching()
        del watching.me
        del watching
        return time.time()

    def others(phase: str, info: dict[str, Any]) -> None:
        seen.append(time.time())

    gc.collect()
    gc.callbacks.append(others)
    gc.callbacks.insert(0, others)
    perform(gc.collect)  # callbacks that came before ours are behind it from the next collection on
    seen.clear()
    inside = perform(collected)
    gc.callbacks.remove(others)
    gc.callbacks.remove(others)
    real, seen[:] = [at > 1_600_000_000 for at in seen], []
    keyed = refusal(lambda: [Watching(), gc.collect()], keying=True)
    seen.clear()
    return {"real": real, "inside": inside, "keyed": keyed, "released": [perform(released), *seen]}


def own_stream() -> random.Random:
    """Return what `ctx.random` is."""
    active = RUNNING.active
    assert active is not None
    return active.streams("count").random


def seeded(generator: Any, *values: Any) -> list[float]:
    """Return what a generator, or the module, draws after these seeds and one without a value."""
    for value in values:
        generator.seed(value)
    generator.seed()
    return [generator.random(), generator.gauss(0, 1)]


SEEDING: dict[str, Callable[[], Any]] = {
    "random": lambda: seeded(random),
    "random, after None": lambda: seeded(random, None),
    "random, after a number": lambda: seeded(random, 7),
    "ctx.random": lambda: seeded(own_stream()),
    "a copy of ctx.random": lambda: [*seeded(copy.copy(own_stream())), own_stream().random()],
    "Random(1)": lambda: seeded(random.Random(1)),
}


def report(mode: str) -> dict[str, Any]:
    everything = {
        name: [repr(perform(ask)), repr(perform(ask)), repr(ask())] for name, ask in {**ASKING}.items()
    } if mode != "refuse" else {name: refusal(ask) for name, ask in ASKING.items()}  # fmt: skip
    facts: dict[str, Any] = {
        "asking": everything,
        "given": [name for name, ask in DETERMINED.items() if perform(ask) != ask()],
        "elsewhere": perform(elsewhere),
        "suspended": perform(outside),
        "keying": refusal(time.time_ns, keying=True),
        "live": SystemEnvironment().wall_ns() > 1_600_000_000_000_000_000
        and perform(SystemEnvironment().wall_ns) > 1.6e18,
    }
    if mode == "refuse":
        refusals = {name: refusal(each.random) for name, each in OUTSIDE_BEFORE.items()}
        return {**facts, "caught": caught(), "created outside": refusals}
    return {
        **facts,
        "same type": type(perform(datetime.datetime.now)) is type(datetime.datetime(2000, 1, 1)),
        "created outside": {
            f"{name} {when}": [perform(partial(drawn, each)), perform(partial(drawn, each)), drawn(each)]
            for when, kinds in (("before", OUTSIDE_BEFORE), ("after", generators()))
            for name, each in kinds.items()
        },
        "made inside": {name: [perform(partial(drawn_from, name)) for _ in "12"] for name in OUTSIDE_BEFORE},
        "seeded inside": [drawn(random.Random(1)), perform(lambda: drawn(random.Random(1)))],
        "seeded by nothing": {name: [repr(perform(ask)) for _ in "12"] for name, ask in SEEDING.items()},
        "finalised": finalised(),
        "early": [perform(early.everything), perform(early.everything), early.everything()],
        "late": [perform(lazily), perform(lazily), lazily()],
        "taken before": [repr(perform(TAKEN_BEFORE["randint"][0])) for _ in "12"],
        "logged": logged(),
        "seeded by the operator": [perform(lambda: (random.seed(3), random.random(), uuid.uuid4().hex)) for _ in "12"],
    }


if __name__ == "__main__":
    how = sys.argv[1]
    if how == "fallback":
        clock._put = lambda kind, named: False  # a Python whose types cannot be patched
    install.install("capture" if how == "fallback" else how)
    json.dump(report(how), sys.stdout, default=repr)
