"""The counts of `counts.py`, over files that Spark reads on any host with a label; the last file waits for the gate."""

from __future__ import annotations

from typing import Any

from benchmarks.jobs.counting import Count, key_of
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import SparkSource

pipeline = Pipeline("ingested")
settings = pipeline.settings
files, last, gate = settings["input"], settings["last"], settings["gate"]


def after_gate(name: str) -> str:
    """Return the name of a file; of the last one only when the gate is there."""
    import time
    from pathlib import Path

    while name == last and not Path(gate).exists():
        time.sleep(0.02)
    return name


def read(spark: Any) -> Any:
    from pyspark.sql import functions as F

    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(files)
    part = F.split("value", " ")
    return lines.select(
        part[0].cast("int").alias("p"),
        part[1].cast("int").alias("v"),
        F.udf(after_gate)("_metadata.file_name").alias("file"),
    )


source = SparkSource(read, available_now=True, memory="512m", master="local[1,4]")
(
    pipeline.source("numbers", source, parallelism=2)
    .key_by(lambda record: key_of(record["p"], record["v"]))
    .process("count", Count(), parallelism=2)
    .sink("out", SqliteSink(settings["out"]), host="a")
)
pipeline.place("numbers", spark="yes")
