"""Counts per key, prints and logs while it does, and raises three calls deep on the records that a setting names."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("raising")
COUNT = int(pipeline.settings.get("count", "2000"))
RATE = float(pipeline.settings.get("rate", "2000"))
RAISES = int(pipeline.settings.get("raises", "0"))


def look_up(record: dict[str, Any]) -> Any:
    return record["deep"]  # the line that errors must name


def checked(record: dict[str, Any]) -> dict[str, Any]:
    if RAISES and record["i"] % RAISES == RAISES - 1:
        look_up(record)
    return record


class Count(Operator):
    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        if n % 100 == 0:
            print("printed", ctx.key, n)
            logging.getLogger("mine").info("logged %s %s", ctx.key, n)
            ctx.log.info("by ctx %s %s", ctx.key, n)
        yield {**checked(record), "n": n}


numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: {"i": i}, count=COUNT, rate=RATE))
numbers.key_by(lambda r: r["i"] % 2).process("count", Count()).sink("out", SqliteSink("out.db"))
