"""Rows that are hashed onto each other (`tests.servers.chains`) into a sink of every kind, several rows at a time.

Rows of a few hundred bytes: a bundle of several does not fit into one page of a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operators import Pipeline
from operators.sinks import JsonLinesSink, ParquetSink, PostgresSink, RedisSink, Sink, SqliteSink
from tests.faults.pipelines.held_source import HeldSource
from tests.servers.chains import Link, numbered

pipeline = Pipeline("watched")
settings = pipeline.settings
count, rate, each, gate = (settings[name] for name in ("count", "rate", "each", "gate"))


def several(record: Any) -> Iterator[Any]:
    first = record["i"] * int(each)
    for i in range(first, first + int(each)):
        yield numbered(record["source"])(0, i)


def padded(row: Any) -> Any:
    return {**row, "load": "x" * 300}


def sinks() -> dict[str, tuple[Sink, int]]:
    """Sink and tasks by name; on servers where the test has them."""
    kinds: dict[str, tuple[Sink, int]] = {
        "sqlite": (SqliteSink("rows.db"), 1),
        "lines": (JsonLinesSink("lines"), 2),
        "parquet": (ParquetSink("parquet", publish_s=0.2), 1),
    }
    if "dsn" in settings:
        kinds["postgres"] = PostgresSink(settings["dsn"], table=settings["named"]), 2
    if "url" in settings:
        kinds["redis"] = RedisSink(settings["url"], stream=settings["named"]), 1
    return kinds


one, two = (
    pipeline.source(f"source-{n}", HeldSource(numbered(n), int(count), float(rate), Path(gate))) for n in (1, 2)
)
elements = one.union(two).flat_map("several", several)
rows = elements.key_by(lambda record: record["key"]).process("link", Link(), parallelism=2).map("padded", padded)
for name, (sink, tasks) in sinks().items():
    rows.sink(name, sink, parallelism=tasks)
