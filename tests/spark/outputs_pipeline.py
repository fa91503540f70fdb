"""Two partitions counted per key, to a sink of each kind that Spark reads back; ends when a file `gate` is there."""

from __future__ import annotations

from typing import Any

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink, ParquetSink, SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

KEYS = 23


class Number(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        # The dice make it a job that only a replay, not a second execution, can continue.
        yield {**record, "n": n, "dice": ctx.random.random()}


pipeline = Pipeline("outputs")
settings = pipeline.settings
source = GeneratedSource(
    lambda p, i: {"p": p, "i": i, "k": (i * 31 + p) % KEYS},
    count=int(settings.get("count", "1000")),
    partitions=2,
    rate=float(settings.get("rate", "1000")),
)
numbered = (
    pipeline.source("numbers", hold_end(source, settings["gate"]))
    .key_by(lambda record: record["k"])
    .process("number", Number())
)
numbered.sink("table", SqliteSink("rows.db"), parallelism=1)
numbered.sink("lines", JsonLinesSink("lines"), parallelism=2)
numbered.sink("files", ParquetSink("files", publish_s=0.5), parallelism=2)
