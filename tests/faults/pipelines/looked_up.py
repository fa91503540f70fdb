"""Draws and counts per key, asks the outside for each record, and raises on the records that a setting names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from tests.faults.pipelines.held_source import HeldSource

pipeline = Pipeline("looked_up")
GATE = Path(pipeline.settings["gate"])
COUNT = int(pipeline.settings.get("count", "2000"))
RAISES = int(pipeline.settings.get("raises", "500"))


class Draw(Operator):
    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        if record["i"] % RAISES == RAISES - 1:
            raise ValueError(record["i"])
        yield {**record, "n": n, "drawn": ctx.random.random(), "at": ctx.now()}


numbers = pipeline.source("numbers", HeldSource(lambda p, i: {"i": i}, COUNT, 1000.0, GATE))
asked = numbers.call("ask", lambda record, key: True, combine=lambda record, answer: {**record, "asked": answer})
asked.key_by(lambda record: record["i"] % 2).process("draw", Draw()).sink("out", SqliteSink("out.db"))
