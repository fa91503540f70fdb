"""Reads the output of a running job with Spark: the largest value of each key so far, and every row once.

    causal run examples/fraud_chain.py --set out=/tmp/fraud.db &
    python -m examples.read_back /tmp/fraud.db --key card --value n                # the rows so far
    python -m examples.read_back /tmp/fraud.db --key card --value n --follow /tmp/checkpoint

With `--follow` the rows are read as a stream, whose Spark checkpoint has the position: it can be ended in any way and
started again, and each row is counted once.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import Any

from operators.spark.session import spark_session

ROWS_MAX = 10_000


def largest(frame: Any, key: str, value: str) -> Any:
    """Return the number of rows and the largest value of each key."""
    from pyspark.sql import functions as F

    return frame.groupBy(key).agg(F.count("*").alias("rows"), F.max(value).alias("largest")).orderBy(key)


def rows_now(spark: Any, path: str) -> Any:
    """Return the rows of the sink at this moment; the columns are those of its records."""
    return spark.read.format("causal").load(path)


def rows_to_come(spark: Any, path: str) -> Any:
    """Return the rows as a stream: present ones, from which the schema is inferred, and later ones."""
    return spark.readStream.format("causal").option("maxRowsPerBatch", ROWS_MAX).load(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.read_back", description=__doc__.splitlines()[0])
    parser.add_argument("path", help="the file of a SqliteSink, or the directory of a JsonLinesSink or a ParquetSink")
    parser.add_argument("--key", required=True)
    parser.add_argument("--value", required=True)
    parser.add_argument("--follow", metavar="CHECKPOINT", help="also read later rows; directory of Spark's checkpoint")
    options = parser.parse_args(arguments)
    with suppress(KeyboardInterrupt), spark_session("local[2]") as spark:
        spark.sparkContext.setLogLevel("ERROR")
        if options.follow is None:
            largest(rows_now(spark, options.path), options.key, options.value).show(20)
            return 0
        counted = largest(rows_to_come(spark, options.path), options.key, options.value)
        query = counted.writeStream.outputMode("complete").format("console")
        query.option("checkpointLocation", options.follow).start().awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
