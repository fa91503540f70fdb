"""A count per key with a random number in each row, from two sources, which the test lets end, to one sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operators import Context, Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import Held

KEYS = 50


class Count(Operator):
    """Counts the records of each key; the random number would differ if a record were performed again otherwise."""

    def process(self, record: Any, ctx: Context) -> Iterator[Any]:
        n = ctx.state.get("n", 0) + 1
        ctx.state["n"] = n
        yield {"key": ctx.key, "n": n, "v": record["v"], "dice": ctx.random.random()}


def make(partition: int, index: int) -> dict[str, int]:
    return {"k": (partition * 31 + index * 7) % KEYS, "v": index}


pipeline = Pipeline("counts")
settings = pipeline.settings
numbers = GeneratedSource(make, count=int(settings["count"]), partitions=2, rate=float(settings["rate"]))
(
    pipeline.source("numbers", Held(numbers, Path(settings["gate"])), parallelism=2)
    .key_by(lambda record: record["k"])
    .process("count", Count(), parallelism=2)
    .sink("out", SqliteSink(settings["out"]), host=settings.get("pin", "a"))
)
