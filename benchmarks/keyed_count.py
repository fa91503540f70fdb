"""The pipeline of `throughput` and `determinants`: a keyed running count over (key, value) rows with zipf keys.

The rows are a fixed table read over and over in slices, so that a source costs what a slice costs, and
every process (and the bare job) sees the same ones.
"""

from __future__ import annotations

import random

from operators import Pipeline
from operators.sinks import TallySink
from operators.sources import SequenceSource

KEYS = 10_000
TABLE_ROWS = 1 << 18


def table(rows: int = TABLE_ROWS) -> list[tuple[int, int]]:
    """Keys log-uniform over 1 … 9,999 (zipf-like, s = 1), values 0 … 9, seed 42."""
    chance = random.Random(42)
    return [(int(KEYS ** chance.random()), chance.randrange(10)) for _ in range(rows)]


def slices(partition: int, start: int, stop: int) -> list[tuple[int, int]]:
    """Rows `start` to `stop` of a partition: the table from a place of the partition's own, again and again."""
    if not _table:
        _table.extend(table())
    begin = (start + partition * (TABLE_ROWS // 2)) % TABLE_ROWS
    rows = _table[begin : begin + stop - start]
    while len(rows) < stop - start:
        rows += _table[: stop - start - len(rows)]
    return rows


_table: list[tuple[int, int]] = []

pipeline = Pipeline("keyed-count")
count = int(pipeline.settings.get("count", "1000000"))
partitions = int(pipeline.settings.get("partitions", "2"))
width = int(pipeline.settings.get("parallelism", "2"))
rate = float(pipeline.settings["rate"]) if pipeline.settings.get("rate") else None

source = SequenceSource(slices, count=count // partitions, partitions=partitions, rate=rate)
(
    pipeline.source("rows", source, parallelism=partitions)
    .key_by(lambda row: row[0])
    .count("count", parallelism=width)
    .sink("out", TallySink(pipeline.settings.get("out", "tally.db")))
)
