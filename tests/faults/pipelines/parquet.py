"""Rows numbered per key to two tasks of one Parquet sink, and as vectors counted per key to another.

The sources hold back their end until a file is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import ParquetSink
from tests.faults.pipelines.held_source import HeldSource

KEYS = 23


class Number(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        # The dice make it a job that only a replay, not a second execution, can continue.
        yield {**record, "n": str(n) if odd and record["i"] % odd == 7 else n, "dice": ctx.random.random()}


def element(partition: int) -> Any:
    return lambda p, i: {"p": partition, "i": i, "k": (i * 31 + partition) % KEYS}


pipeline = Pipeline("parquet")
settings = pipeline.settings
odd = int(settings.get("odd", "0"))  # of this many elements one has a text in the place of a number
schema = {"p": "int64", "i": "int64", "k": "int64", "n": "int64", "dice": "double"}
count, gate = int(settings["count"]), Path(settings["gate"])
publish_s = float(settings.get("publish_s", "0.3"))
one, two = (pipeline.source(f"s{p}", HeldSource(element(p), count, float(settings["rate"]), gate)) for p in range(2))
rows = one.union(two).filter("all", lambda record: True)
keyed = rows.key_by(lambda record: record["k"])
keyed.process("number", Number(), parallelism=2).sink(
    "rows", ParquetSink("rows", schema, publish_s=publish_s), parallelism=2
)
columns = rows.to_vectors("columns", {"p": "int32", "i": "int64", "k": "int64"})
columns.key_by("k").count("count").sink("vectors", ParquetSink("vectors", publish_s=publish_s))
