"""The pipeline of `spark`: lines that Spark reads from a socket, each with the moment at which it was sent.

A row of the sink is the number of a line, and the times at which it was sent and at which the operator had it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import SparkSource


def stamped(row: dict[str, Any]) -> tuple[int, int, int]:
    """Return the number of a line, when it was sent, and now; ns since 1970."""
    number, sent_ns = row["value"].split()
    return int(number), int(sent_ns), time.time_ns()


def lines(spark: Any, port: int) -> Any:
    """Return the lines that are sent to a port."""
    return spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()


pipeline = Pipeline("spark-lines")
port = int(pipeline.settings.get("port", "9999"))
out = Path(pipeline.settings.get("out", "out.db"))
source = SparkSource(lambda spark: lines(spark, port), partitions=1, trigger="0 seconds")
pipeline.source("lines", source).map("stamped", stamped).sink("out", SqliteSink(out))
