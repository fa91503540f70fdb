"""Gives the lines of `spark` to Python batch by batch, with PySpark alone.

    python -m benchmarks.jobs.bare_spark PORT FILE

The file gets the number of each line, and the times at which it was sent and at which `foreachBatch` had it.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

from benchmarks.jobs.spark_lines import lines, stamped


def main() -> int:
    """Run until the process is ended."""
    from pyspark.sql import SparkSession

    port, path = int(sys.argv[1]), Path(sys.argv[2])
    builder: Any = SparkSession.builder
    conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.master("local[2]").getOrCreate()

    def take(frame: Any, batch: int) -> None:
        rows = [stamped(row.asDict()) for row in frame.collect()]
        with path.open("a") as out:
            out.writelines(f"{' '.join(map(str, row))}\n" for row in rows)

    query = lines(spark, port).writeStream.foreachBatch(take).trigger(processingTime="0 seconds").start()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        query.awaitTermination()
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
