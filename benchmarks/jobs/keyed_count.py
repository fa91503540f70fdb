"""The pipeline of `throughput`, `overhead` and `determinants`: a keyed running count of (key, value) rows, zipf keys.

The rows are a fixed table read over and over in slices, so that a source costs what a slice costs, and
every process (and the bare job) sees the same ones.  With `depth` above 2, more tasks in a row count the rows again.
"""

from __future__ import annotations

from typing import Any

from benchmarks.harness.tally import TallySink
from benchmarks.peers.programs import inputs
from operators import Pipeline
from operators.source import PartitionReader
from operators.sources import Read, SequenceSource

SHAPE = {"keys": inputs.KEYS - 1, "partitions": 2, "parallelism": 2}
"""The shape of the job, as the settings of results name it."""
Row = tuple[int, int]


def key_of(row: Row) -> int:
    """Return the key of a row."""
    return row[0]


class TableSource(SequenceSource):
    """The rows of the table; it is made when a partition is opened, before its first record enters.

    Args:
        unmeasured: so many rows of each partition have no part in the figures of latency: while a job comes up, its
            first rows wait for the last of its processes.
    """

    def __init__(self, count: int, partitions: int, rate: float | None = None, unmeasured: int = 0) -> None:
        super().__init__(inputs.rows, count, partitions, rate)
        self.unmeasured = unmeasured

    def open(self, partition: int, context: Any) -> Any:
        inputs.table()
        return _Reader(super().open(partition, context), self.unmeasured)


class _Reader:
    def __init__(self, reader: PartitionReader, unmeasured: int) -> None:
        self._reader = reader
        self._unmeasured = unmeasured
        self.ready_in_s, self.completed, self.close = reader.ready_in_s, reader.completed, reader.close

    def read(self, position: int, count_max: int) -> Read | None:
        batch = self._reader.read(position, count_max)
        if batch is None or position >= self._unmeasured:
            return batch
        return Read(batch.records, 0, batch.ended)


pipeline = Pipeline("keyed-count")
count = int(pipeline.settings.get("count", "1000000"))
partitions = int(pipeline.settings.get("partitions", "2"))
width = int(pipeline.settings.get("parallelism", "2"))
rate = float(pipeline.settings["rate"]) if pipeline.settings.get("rate") else None

depth = int(pipeline.settings.get("depth", "2"))
unmeasured = int(pipeline.settings.get("unmeasured", "0"))

stream = pipeline.source("rows", TableSource(count // partitions, partitions, rate, unmeasured), partitions)
for stage in range(depth - 1):
    stream = stream.key_by(key_of).count(f"count{stage or ''}", parallelism=width)
stream.sink("out", TallySink(pipeline.settings.get("out", "tally.db")))
