"""Numbered rows, each with a draw, posted to a web service."""

from __future__ import annotations

from typing import Any

from operators import Operator, Pipeline
from operators.sinks import WebhookSink
from operators.sources import GeneratedSource


class Draw(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"n": n, "i": record["i"], "k": ctx.key, "dice": ctx.random.random()}


pipeline = Pipeline("posted")
settings = pipeline.settings
(
    pipeline.source(
        "numbers",
        GeneratedSource(
            lambda p, i: {"i": i, "k": i % 7},
            count=int(settings.get("count", "3000")),
            rate=float(settings.get("rate", "500")),
        ),
    )
    .key_by(lambda record: record["k"])
    .process("draw", Draw())
    .sink("out", WebhookSink(settings["url"], batch_rows=20))
)
