"""A Spark that reads outputs as streams, each batch into a file of its own, until it is asked to finish, or killed.

    python -m tests.spark.reading_program DIRECTORY '{"name": "path of the output", …}'

Written files: `ready` when Spark is up; `batches/<batch>.json` with the rows of a batch, the same file when the batch
comes again; `checks.json` with what reads without streams gave.  It waits for `go` before it reads, and for `finish`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.read_back import largest, rows_now
from operators.sources import SparkSource
from operators.spark.driver import configuration
from operators.spark.java import find_java, java_home
from operators.spark.jvm import SparkJvm

SCHEMA = "p int, i int, k int, n bigint, dice double, _task string, _position bigint"
ROWS_MAX = 200


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def keep(directory: Path) -> Callable[[Any, int], None]:
    """Return a writer of batches: one file each, replaced as a whole."""
    directory.mkdir(exist_ok=True)

    def write(frame: Any, batch: int) -> None:
        fresh = directory / f"{batch}.new"
        fresh.write_text(json.dumps([row.asDict() for row in frame.collect()]))
        os.replace(fresh, directory / f"{batch}.json")

    return write


def started(spark: SparkSession, outputs: dict[str, str], work: Path) -> Any:
    """One query over all outputs: a batch has rows of each."""
    rows = spark.readStream.format("causal").schema(SCHEMA).option("maxRowsPerBatch", ROWS_MAX)
    frames = [rows.option("path", path).load().withColumn("sink", F.lit(name)) for name, path in outputs.items()]
    query = reduce(DataFrame.unionByName, frames).writeStream.foreachBatch(keep(work / "batches"))
    return query.option("checkpointLocation", str(work / "checkpoints" / "all")).start()


def error_of(step: Callable[[], object]) -> str:
    try:
        step()
    except Exception as problem:  # every kind of Spark's errors: it is looked at by the test
        return str(problem)
    return ""


def checks(spark: SparkSession, outputs: dict[str, str], work: Path) -> dict[str, Any]:
    """Return what reads without a stream give, what a bounded stream gives, and the errors of wrong paths."""
    results: dict[str, Any] = {}
    for name, path in outputs.items():
        frame = spark.read.format("causal").load(path)
        texts = spark.read.format("causal").option("records", "json").load(path)
        first = texts.orderBy("task", "position").first()
        results[name] = {
            "columns": {field.name: field.dataType.simpleString() for field in frame.schema},
            "rows": frame.count(),
            "pairs": frame.select("p", "i").distinct().count(),
            "first": None if first is None else first.asDict(),
        }
    bounded = spark.readStream.format("causal").schema(SCHEMA).option("maxRowsPerBatch", 600)
    query = bounded.load(outputs["table"]).writeStream.foreachBatch(keep(work / "bounded"))
    query = query.option("checkpointLocation", str(work / "checkpoints" / "bounded")).trigger(availableNow=True).start()
    query.awaitTermination()
    results["largest"] = [row.asDict() for row in largest(rows_now(spark, outputs["files"]), "k", "n").collect()]
    nowhere = str(work / "nowhere")
    results["nowhere"] = error_of(lambda: spark.read.format("causal").load(nowhere).count())
    results["misspelt"] = error_of(lambda: spark.read.format("causal").option("rows", 1).load(nowhere).count())
    narrow = spark.read.format("causal").schema("n boolean")
    results["unfit"] = error_of(lambda: narrow.load(outputs["table"]).count())
    return results


def main() -> int:
    work, outputs = Path(sys.argv[1]), json.loads(sys.argv[2])
    with open(work / "lock", "w") as lock:
        jvm = SparkJvm(work / "spark", lock.fileno())
        home = java_home(find_java(), jvm.work)
        source = SparkSource(lambda spark: None)
        jvm.start(configuration(source, jvm.work), Path(pyspark.__file__).resolve().parent, home)
        try:
            spark = SparkSession.builder.getOrCreate()
            (work / "ready").touch()
            wait_for(work / "go")
            query = started(spark, outputs, work)
            while not (work / "finish").exists():
                if query.exception() is not None:
                    raise query.exception()
                time.sleep(0.05)
            query.processAllAvailable()
            query.stop()
            (work / "checks.json").write_text(json.dumps(checks(spark, outputs, work)))
        finally:
            jvm.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
