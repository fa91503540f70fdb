"""Counts events of a topic of Kafka per key into another topic; each row has dice, a time and a hash of the row before.

A row that was lost, doubled, or performed a second time with other dice would break the chain of its key.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from operators import Context, Operator, Pipeline
from operators.sinks import KafkaSink
from operators.sources import KafkaSource

KEYS = 50


def link(row: dict[str, Any], before: int) -> int:
    """Return the hash of a row and of the one before it."""
    text = f"{before} {row['key']} {row['n']} {row['partition']} {row['i']} {row['dice']} {row['at']}"
    return zlib.crc32(text.encode())


class Count(Operator):
    """Counts the events of a key."""

    def process(self, record: Any, ctx: Context) -> Iterator[Any]:
        """Yield the count with dice, a time and the hash of the row before."""
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        row = {**record, "n": n, "dice": ctx.random.randint(1, 6), "at": ctx.now()}
        row["hash"] = ctx.state["hash"] = link(row, ctx.state.get("hash", 0))
        yield row


def event(partition: int, i: int) -> dict[str, Any]:
    """Return one event."""
    return {"partition": partition, "i": i, "key": f"k{(i * 7 + partition) % KEYS}"}


pipeline = Pipeline("kafka-counts")
settings = pipeline.settings
servers = settings.get("servers", "127.0.0.1:9092")
(
    pipeline.source("events", KafkaSource(servers, "events"))
    .key_by(lambda record: record["key"])
    .process("count", Count(), parallelism=2)
    .sink(
        "out",
        # The stand-in for Kafka in the demonstration does not keep what it acknowledged if records were deleted.
        KafkaSink(servers, "counts", key=lambda row: row["key"], trim=False),
    )
)
