"""Numbered rows for people, by two tasks."""

from __future__ import annotations

from typing import Any

from operators import Operator, Pipeline
from operators.sinks import ConsoleSink
from operators.sources import GeneratedSource


class Number(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"i": record["i"], "k": ctx.key, "n": n, "dice": ctx.random.random()}


pipeline = Pipeline("shown")
settings = pipeline.settings
(
    pipeline.source(
        "numbers",
        GeneratedSource(
            lambda p, i: {"i": i, "k": i % 7},
            count=int(settings.get("count", "2000")),
            rate=float(settings.get("rate", "500")),
        ),
    )
    .key_by(lambda record: record["k"])
    .process("number", Number(), parallelism=2)
    .sink("out", ConsoleSink(), parallelism=2)
)
