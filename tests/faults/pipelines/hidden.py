"""Operators that take clock and chance wherever they find them, by themselves and in a library that knows no better.

Settings: out, site (a directory of packages with `ticket` in it), count, rate, parallelism, spell ("all", or what to
ask in a key), gate (a file without which it does not end).
"""

import os
import random
import secrets
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

pipeline = Pipeline("hidden")
settings = pipeline.settings
SPELL = settings.get("spell")
sys.path.insert(0, settings["site"])

import ticket  # type: ignore[import-not-found]  # made by the test  # noqa: E402


def stamped(record: Any) -> dict[str, Any]:
    return {**record, "at": time.time(), "day": date.today().isoformat(), "chance": random.random()}


def lucky(record: Any) -> bool:
    return random.randint(0, 9) > 0 and secrets.randbelow(10) < 9


class Own(Operator):
    """Everything a second time, in an operator with state."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        seen = ctx.state["seen"] = ctx.state.get("seen", 0) + 1
        yield {
            **record,
            "seen": seen,
            "uuid": str(uuid.uuid4()),
            "bytes": os.urandom(4).hex(),
            "now": datetime.now().isoformat(),
            "gauss": random.gauss(0, 1),
            "mine": ctx.random.random(),
            "ticket": ticket.everything(),
        }


def key(record: Any) -> Any:
    return time.time_ns() if SPELL == "key" else record["i"] % 20


source = GeneratedSource(
    lambda partition, i: {"i": i, "p": partition},
    count=int(settings.get("count", 2000)),
    partitions=2,
    rate=float(settings.get("rate", 2000)),
)
(
    pipeline.source("numbers", hold_end(source, settings.get("gate")))
    .map("stamp", stamped)
    .filter("lucky", lucky)
    .key_by(key)
    .process("own", Own(), parallelism=int(settings.get("parallelism", 2)))
    .map("last", lambda record: {**record, "last": time.time(), "dice": random.randrange(6)})
    .sink("out", SqliteSink(settings["out"]))
)
