"""Compares the rows that a driver collects with those that tasks are given."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from operators.spark.small_batches import SmallBatches
from operators.spark.writer import _as_stream

ROWS, PARTITIONS = 60, 5
OF_TASKS = pa.schema([("partition", pa.int32()), ("stream", pa.binary())])


def of_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, as a task of `spark_writer` is given them."""
    pieces = [batch for batch in batches if batch.num_rows]
    context = TaskContext.get()
    assert context is not None
    if pieces:
        row = {"partition": context.partitionId(), "stream": bytes(_as_stream(pieces))}
        yield pa.RecordBatch.from_pylist([row], OF_TASKS)


def main() -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    frame = spark.range(ROWS).repartition(PARTITIONS, "id").withColumn("text", F.concat(F.lit("ä"), F.col("id")))
    frame = frame.withColumn("raw", F.lit(b"\x00\xff")).withColumn("none", F.lit(None).cast("string"))
    frame = frame.withColumn("price", F.lit("1.50").cast("decimal(10,2)")).withColumn("at", F.timestamp_seconds("id"))
    frame = frame.withColumn(
        "nested", F.struct(F.array("id").alias("ids"), F.create_map(F.lit("a"), "id").alias("map"))
    )
    frame = frame.withColumn("text", F.col("text")).select("*", F.col("id").alias("id2")).where("id % 7 != 3")
    tasks = {
        row["partition"]: pa.ipc.open_stream(row["stream"]).read_all()
        for row in frame.mapInArrow(of_task, from_arrow_schema(OF_TASKS)).collect()
    }
    small = SmallBatches()
    collected = small.collected(frame)
    assert collected is not None and list(collected) == sorted(tasks) and len(tasks) > 2
    for partition, pieces in collected.items():
        table = pa.Table.from_batches(pieces)
        assert (table.schema.names, table.schema.types) == (
            tasks[partition].schema.names,
            tasks[partition].schema.types,
        )
        assert table.to_pylist() == tasks[partition].to_pylist()
    small.rows_max = sum(table.num_rows for table in tasks.values()) - 1
    assert small.collected(frame) is None, "one row too many"
    small.rows_max += 1
    assert small.collected(frame) is not None
    assert small.collected(frame.where("id < 0")) == {}
    spark.stop()


if __name__ == "__main__":
    main()
