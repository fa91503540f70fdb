"""Records of 2 kB through a task that takes its time, so that what is kept for replay outgrows a small memory."""

from __future__ import annotations

import time
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource


class Slow(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        time.sleep(0.0004)
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"i": record["i"], "n": n, "bytes": len(record["load"]), "dice": ctx.random.random()}


pipeline = Pipeline("heavy")
settings = pipeline.settings
(
    pipeline.source(
        "numbers",
        GeneratedSource(
            lambda p, i: {"i": i, "k": i % 7, "load": f"{i:08d}" * 256}, count=int(settings.get("count", "6000"))
        ),
    )
    .key_by(lambda record: record["k"])
    .process("slow", Slow())
    .sink("out", SqliteSink(settings.get("out", "heavy.db")))
)
