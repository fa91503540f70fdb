"""Rows numbered per key to two tasks of one sink of a lakehouse; the sources hold back their end until a file is there.

Settings: format (delta or iceberg), where (a directory or URL of the table, or of the catalog), count, rate, gate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import DeltaSink, IcebergSink
from tests.faults.pipelines.held_source import HeldSource

KEYS = 23


class Number(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        # The dice make it a job that only a replay, not a second execution, can continue.
        yield {**record, "n": n, "dice": ctx.random.random(), **({"late": n} if n > 20 else {})}


def element(partition: int) -> Any:
    return lambda p, i: {"p": partition, "i": i, "k": (i * 31 + partition) % KEYS}


def sink_of(format: str, where: str) -> Any:
    options: dict[str, Any] = {"publish_s": 0.2, "new_columns": "add"}
    if format == "delta":
        return DeltaSink(where, **options)
    catalog = {"type": "sql", "uri": f"sqlite:///{where}/catalog.db", "warehouse": f"file://{where}/warehouse"}
    return IcebergSink("shop.out", catalog, **options)


pipeline = Pipeline("lake")
settings = pipeline.settings
count, gate = int(settings["count"]), Path(settings["gate"])
one, two = (pipeline.source(f"s{p}", HeldSource(element(p), count, float(settings["rate"]), gate)) for p in range(2))
(
    one.union(two)
    .key_by(lambda record: record["k"])
    .process("number", Number(), parallelism=2)
    .sink("rows", sink_of(settings["format"], settings["where"]), parallelism=2)
)
