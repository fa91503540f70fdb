"""The pipeline of `vectors`: the keyed running count of `keyed_count`, over the same rows, as Arrow columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness.tally import TallySink
from benchmarks.peers.programs import inputs
from operators import Pipeline
from operators.sources import ArrowSource


def prepare() -> None:
    """Make the columns now, so that no clock runs while they are made."""
    if not _columns:
        rows = inputs.table()
        _columns.append(pa.record_batch({"k": [key for key, _ in rows], "v": [value for _, value in rows]}))


def slices(partition: int, start: int, stop: int) -> Any:
    """Return rows `start` to `stop` of a partition: those of `keyed_count`."""
    prepare()
    [whole] = _columns
    begin = (start + partition * (inputs.TABLE_ROWS // 2)) % inputs.TABLE_ROWS
    if begin + stop - start <= inputs.TABLE_ROWS:
        return whole.slice(begin, stop - start)
    return whole.take(pa.array(np.arange(begin, begin + stop - start) % inputs.TABLE_ROWS))


class ColumnSource(ArrowSource):
    """The rows of the table; it is made when a partition is opened, before its first row enters."""

    def open(self, partition: int, context: Any) -> Any:
        prepare()
        return super().open(partition, context)


_columns: list[Any] = []

pipeline = Pipeline("keyed-vectors")
count = int(pipeline.settings.get("count", "1000000"))
partitions = int(pipeline.settings.get("partitions", "2"))
width = int(pipeline.settings.get("parallelism", "2"))

(
    pipeline.source("rows", ColumnSource(slices, count // partitions, partitions), partitions)
    .key_by("k")
    .count("count", parallelism=width)
    .sink("out", TallySink(pipeline.settings.get("out", "tally.db")))
)
