"""Small micro-batches, whose rows the driver collects from Spark and writes as segments itself.

For a batch of a few rows, the path through a task's Python worker takes longer than everything else. The number of
collected rows has a limit, which depends on the size of the previous batch's rows. If a batch has more rows, Spark
stops collecting, and the tasks write that batch instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.functions import spark_partition_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_MAX, UNKNOWN_ROWS_MAX = 2048, 64
"""The maximum number of collected rows, which also applies while their size is unknown."""
BYTES_MAX = 4 << 20
"""The target for the size of these rows in bytes."""
_PARTITION = "causal.partition"


class SmallBatches:
    """The rule that decides which batches of one query are collected.

    Attributes:
        rows_max: the maximum number of rows that the next batch may have to be collected; 0 if it is not collected.
    """

    def __init__(self) -> None:
        self.rows_max = UNKNOWN_ROWS_MAX

    def collected(self, frame: DataFrame) -> dict[int, list[pa.RecordBatch]] | None:
        """Return the rows of each Spark partition that has any, or None if there are too many rows."""
        if not self.rows_max:
            return None
        numbered = frame.select("*", spark_partition_id().alias(_PARTITION))
        table = numbered.limit(self.rows_max + 1).toArrow()
        if table.num_rows > self.rows_max:
            return None
        last = table.num_columns - 1
        partitions, rows = table.column(last), table.remove_column(last)
        return {
            partition: rows.filter(pc.equal(partitions, partition)).combine_chunks().to_batches()
            for partition in sorted(pc.unique(partitions).to_pylist())
        }

    def note(self, rows: int, size: int) -> None:
        """Record the size of a batch.

        Args:
            rows: the number of rows.
            size: the size of the rows in Arrow, in bytes.
        """
        if rows > ROWS_MAX or size > BYTES_MAX:
            self.rows_max = 0
        elif rows:
            self.rows_max = min(ROWS_MAX, BYTES_MAX * rows // max(size, 1))
        else:
            self.rows_max = self.rows_max or UNKNOWN_ROWS_MAX
