"""A count per key with a random number in each row, from two sources, which the test lets end, to one sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operators import Context, Operator, Pipeline
from operators.sinks import RedisSink, Sink, SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import Held

KEYS = 50


class Count(Operator):
    """Counts the records of each key; the random number would differ if a record were performed again otherwise."""

    def process(self, record: Any, ctx: Context) -> Iterator[Any]:
        n = ctx.state.get("n", 0) + 1
        ctx.state["n"] = n
        yield {"key": ctx.key, "n": n, "v": record["v"], "partition": record["p"], "dice": ctx.random.random()}


def make(partition: int, index: int) -> dict[str, int]:
    return {"k": (partition * 31 + index * 7) % KEYS, "v": index, "p": partition}


pipeline = Pipeline("counts")
settings = pipeline.settings
sink: Sink = RedisSink(settings["url"], stream="counts") if "url" in settings else SqliteSink(settings["out"])
numbers = GeneratedSource(make, count=int(settings["count"]), partitions=2, rate=float(settings["rate"]))
(
    pipeline.source("numbers", Held(numbers, Path(settings["gate"])), parallelism=2)
    .key_by(lambda record: record["k"])
    .process("count", Count(), parallelism=2)
    .sink("out", sink, host=None if "url" in settings else settings.get("pin", "a"))
)
if "label" in settings:  # where all tasks but the sink's may be
    for operator in ("numbers", "count"):
        pipeline.place(operator, **{settings["label"]: "yes"})
