"""Numbered rows, each with a draw, posted to a web service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import WebhookSink
from tests.faults.pipelines.held_source import HeldSource


class Draw(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"n": n, "i": record["i"], "k": ctx.key, "dice": ctx.random.random()}


PER_S = 50.0
"""Slow enough that there is something to post for minutes: an unavailable service shows as a pause."""

pipeline = Pipeline("posted")
settings = pipeline.settings
(
    pipeline.source(
        "numbers",
        HeldSource(lambda p, i: {"i": i, "k": i % 7}, int(settings["count"]), PER_S, Path(settings["gate"])),
    )
    .key_by(lambda record: record["k"])
    .process("draw", Draw())
    .sink("out", WebhookSink(settings["url"], batch_rows=20))
)
