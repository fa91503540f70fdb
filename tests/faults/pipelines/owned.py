"""Numbered rows of one of several jobs into one sink that the newest of them owns."""

from __future__ import annotations

from operators import Pipeline
from operators.sinks import JsonLinesSink, ParquetSink, PostgresSink, RedisSink, Sink, SqliteSink
from tests.faults.pipelines.held_source import held_generated

pipeline = Pipeline("owned")
settings = pipeline.settings
who, kind, where = settings["who"], settings["kind"], settings["where"]


def sink() -> Sink:
    if kind == "sqlite":
        return SqliteSink(where, existing="replace")
    if kind == "lines":
        return JsonLinesSink(where, existing="replace")
    if kind == "parquet":
        return ParquetSink(where, existing="replace", publish_s=0.2)
    if kind == "postgres":
        return PostgresSink(where, table=settings["table"], existing="replace")
    return RedisSink(where, stream=settings["table"], existing="replace")


def numbered(partition: int, i: int) -> dict[str, object]:
    return {"who": who, "i": 2 * i + partition}


rows = held_generated(settings["gate"], numbered, count=300, partitions=2, rate=100)
pipeline.source("rows", rows, parallelism=2).sink("out", sink(), parallelism=2)
