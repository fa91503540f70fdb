"""A count per key with a random number in each row, from two sources, which a file lets end, to one sink."""

from __future__ import annotations

from pathlib import Path

from benchmarks.jobs.counting import Count, key_of
from examples.hosts.gated import GatedSource
from operators import Pipeline
from operators.sinks import RedisSink, Sink, SqliteSink
from operators.sources import GeneratedSource


def make(partition: int, index: int) -> dict[str, int]:
    return {"k": key_of(partition, index), "v": index, "p": partition}


pipeline = Pipeline("counts")
settings = pipeline.settings
sink: Sink = RedisSink(settings["url"], stream="counts") if "url" in settings else SqliteSink(settings["out"])
numbers = GeneratedSource(make, count=int(settings["count"]), partitions=2, rate=float(settings["rate"]))
(
    pipeline.source("numbers", GatedSource(numbers, Path(settings["gate"])), parallelism=2)
    .key_by(lambda record: record["k"])
    .process("count", Count(), parallelism=2)
    .sink("out", sink, host=None if "url" in settings else settings.get("pin", "a"))
)
if "label" in settings:  # where all tasks but the sink's may be
    for operator in ("numbers", "count"):
        pipeline.place(operator, **{settings["label"]: "yes"})
