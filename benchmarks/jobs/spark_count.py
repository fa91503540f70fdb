"""The pipeline of `spark_vectors`: the keyed count over Parquet files that Spark reads, as dicts or as columns."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.tally import TallySink
from operators import Pipeline
from operators.sources import SparkSource

SCHEMA = "k bigint, v bigint"
FILES_PER_BATCH = 4
PARTITIONS = 2

pipeline = Pipeline("spark-count")
place = pipeline.settings.get("files", ".")
vectors = pipeline.settings.get("form", "vectors") == "vectors"


def read(spark: Any) -> Any:
    """All files of the directory, some at a time."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(place)


def key_of(row: dict[str, int]) -> int:
    """The key of a row that is a dict."""
    return row["k"]


source = SparkSource(read, PARTITIONS, available_now=True, vectors=vectors)
(
    pipeline.source("rows", source)
    .key_by("k" if vectors else key_of)
    .count("count", parallelism=2)
    .sink("out", TallySink(pipeline.settings.get("out", "tally.db")))
)
"""Its sink counts how many records each task has written."""
