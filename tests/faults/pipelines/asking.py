"""Every record asks a service outside, which remembers each request: a directory with a file per idempotency key.

Settings: out, world, count, rate, order, sources, parallelism, stamped (each record is given the place in which it
came, by an operator before the call), later (an operator without state follows, which gives the task another name),
gate (a file without which it does not end); records whose number `fail` divides fail the first time, those of `never`
always, and those of `slow` hang until they are out of time.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

pipeline = Pipeline("asking")
settings = pipeline.settings
WORLD = Path(settings["world"])
FAIL, NEVER, SLOW = (int(settings.get(name, 0)) for name in ("fail", "never", "slow"))
SLOW_S = 1.0
"""The time that a call may take.  A process that was not run for a while finds that all its calls took longer: they are
retried, often enough for that to happen several times."""


def noted(key: str, number: int) -> int:
    """Record a request and return how often its key has asked: a file per key, a line per time."""
    line = f"{number}\n".encode()
    with open(WORLD / key, "ab", buffering=0) as times:
        times.write(line)
        return times.seek(0, os.SEEK_CUR) // len(line)


def ask(record: Any, key: str) -> Any:
    """Its effect is there once per key, however often it is asked; the answer is another one each time."""
    time.sleep(random.random() * 0.02)
    number = record["p"] * 1_000_000 + record["i"]
    asked = noted(key, number if "place" not in record else number * 1_000_000 + record["place"])
    if NEVER and record["i"] % NEVER == 0:
        raise ValueError(f"never {record['i']}")
    if FAIL and asked == 1 and record["i"] % FAIL == 0:
        raise OSError("not today")
    if SLOW and record["i"] % SLOW == 0:
        time.sleep(2 * SLOW_S)
    return {"key": key, "by": os.getpid(), "at": time.time()}


class Stamp(Operator):
    """Gives each record the place in which it came: the request depends on an order that only the log knows."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        place = ctx.state["place"] = ctx.state.get("place", 0) + 1
        yield {**record, "place": place}


class Onward(Operator):
    """Counts, and hands on."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {**record, "n": ctx.state["n"]}


def numbered(partition: int, position: int) -> dict[str, int]:
    return {"i": position, "p": partition}


source = GeneratedSource(
    numbered, count=int(settings.get("count", 600)), partitions=2, rate=float(settings.get("rate", 400))
)
numbers = pipeline.source(
    "numbers", hold_end(source, settings.get("gate")), parallelism=int(settings.get("sources", 1))
)
asked = (
    (numbers.process("stamp", Stamp(), parallelism=1) if settings.get("stamped") else numbers)
    .call(
        "rate",
        ask,
        combine=lambda record, answer: {**record, **answer},
        order=settings.get("order", "input"),
        timeout_s=SLOW_S if SLOW else None,
        retries=4 if FAIL else 0,
        backoff_s=0.01,
    )
    .map("after", lambda record: {**record, "after": time.time()})
)
if settings.get("later"):
    asked = asked.map("later", lambda record: {**record, "later": True})
(
    asked.key_by(lambda record: record["i"] % 10)
    .process("keyed", Onward(), parallelism=int(settings.get("parallelism", 1)))
    .sink("out", SqliteSink(Path(settings["out"])))
)
