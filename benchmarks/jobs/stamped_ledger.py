"""The pipeline of `latency_back`: rows of a keyed running count that say which element they are and who counted it.

A row is (index of the counting task, key, n, partition, i).  Element i of a partition entered at i times the interval
of the source after the job began, so its latency follows from when its row became visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import written
from benchmarks.jobs.stamped_sink import StampedSink
from operators import Operator, Pipeline
from operators.sources import GeneratedSource

KEYS = 10_000
PARTITIONS = 2
COUNTERS = 2

Row = tuple[int, int, int, int, int]


def make(partition: int, i: int) -> tuple[int, int, int]:
    """Element i of a partition: the keys in turn, scattered."""
    return (i * 7919 + partition * 4001) % KEYS, partition, i


class Count(Operator):
    """A running count per key."""

    def process(self, record: Any, ctx: Any) -> Iterator[Row]:
        """Yield one row per element."""
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        key, partition, i = record
        yield int(ctx.task.rpartition("/")[2]), key, n, partition, i


def read_rows(path: Path) -> list[Row]:
    """Return all rows in the order of their positions."""
    return [tuple(record) for record in written.records_in(path)]


def wrong(rows: list[Row], count: int) -> dict[str, int]:
    """Return faults of the rows by kind: elements lost and doubled, numbers out of turn.

    Args:
        count: elements per partition.
    """
    return written.wrong(((key, n, (partition, i)) for _, key, n, partition, i in rows), PARTITIONS * count)


pipeline = Pipeline("stamped-ledger")
count = int(pipeline.settings.get("count", "10000"))
rate = float(pipeline.settings.get("rate", "5000"))
width = int(pipeline.settings.get("width", "2"))
"""The tasks of the source and of the counter; a job in one process has one of each."""

(
    pipeline.source("numbers", GeneratedSource(make, count, PARTITIONS, rate), parallelism=width)
    .key_by(lambda row: row[0])
    .process("count", Count(), parallelism=width)
    .sink("out", StampedSink(pipeline.settings.get("out", "ledger.db")))
)
