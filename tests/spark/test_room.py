"""A real Spark waits for a job that does not read, through deaths, and continues when it does."""

from __future__ import annotations

import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from causal.config import JobConfig
from causal.records.vectors import Vectors
from operators.ingest.contract import SEGMENT_BYTES_MIN
from operators.ingest.place import IngestPlace
from operators.source import SourceContext
from operators.spark.spark_source import SparkSource
from tests.members import members
from tests.spark.conftest import StartDriver, eventually
from tests.spark.test_driver import gate_of, written_input, written_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

BYTES_MAX = 3 * SEGMENT_BYTES_MIN
FILES_PER_BATCH = 20


@pytest.mark.parametrize("terminated", members([False, True]))
def test_spark_waits_while_nothing_is_read_and_loses_nothing(
    tmp_path: Path, start_driver: StartDriver, terminated: bool
) -> None:
    """Spark is killed while it waits, and then terminated while it waits again."""
    expected = written_input(tmp_path / "input")
    job = written_job(tmp_path, FILES_PER_BATCH, tmp_path / "input")
    config = JobConfig.load(job)
    replace(config, ingest_bytes_max=BYTES_MAX).save(job)
    gate_of(tmp_path).touch()
    log = IngestPlace(job, "lines", 2).open()

    def waits(after_ns: int = 0) -> bool:
        backlog = log.backlog()
        return backlog is not None and backlog.since_ns > after_ns

    driver = start_driver(job, "lines")
    eventually(lambda: driver.ended() or waits(), "a batch that waits for room")
    assert not driver.ended(), driver.said()
    published = log.batches()
    assert published == [0]  # of three
    driver.process.kill()
    assert driver.process.wait() == -signal.SIGKILL
    eventually(lambda: not driver.members(), "the end of all that the driver started")

    killed_ns = time.monotonic_ns()
    driver = start_driver(job, "lines")
    eventually(lambda: driver.ended() or waits(killed_ns), "the same batch that waits again")
    assert not driver.ended() and log.batches() == published, driver.said()
    eventually(lambda: "batch 1 waits: " in driver.said(), "a line about the wait")
    if terminated:
        driver.process.terminate()
        assert driver.process.wait(20) == 128 + signal.SIGTERM
        eventually(lambda: not driver.members(), "the end of all that the driver started")
        assert log.batches() == published
        driver = start_driver(job, "lines")
    source = SparkSource(lambda spark: spark)
    readers = [source.open(partition, SourceContext("lines", job, 0)) for partition in range(source.partitions)]
    positions, ended, rows = [0, 0], [False, False], list[Any]()

    def reads_on() -> bool:
        for at, reader in enumerate(readers):
            read = None if ended[at] else reader.read(positions[at], 64)
            if read is not None:
                ended[at] = read.ended
                assert not isinstance(read.records, Vectors)
                rows.extend(read.records)
                positions[at] += len(read.records)
                reader.completed(positions[at])
        return all(ended) or driver.ended() and driver.process.returncode != 0

    eventually(reads_on, "the end of both partitions")
    eventually(driver.ended, "the end of the query")
    assert driver.process.returncode == 0, driver.said()
    assert Counter((row["file"], row["line"]) for row in rows) == expected


RAISING = """
from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import SparkSource

pipeline = Pipeline("lines")

def parsed(text):
    return int(text)

def read(spark):
    from pyspark.sql import functions as F
    lines = spark.readStream.format("text").load(pipeline.settings["input"])
    return lines.select(F.udf(parsed, "int")("value").alias("n"))

source = SparkSource(read, available_now=True, master="local[1,1]", failures_max=2)
pipeline.source("lines", source).sink("out", JsonLinesSink("out"))
"""


@pytest.mark.campaign
def test_a_row_on_which_a_udf_always_raises_ends_the_job_with_its_error(
    tmp_path: Path, start_driver: StartDriver
) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.txt").write_text("1\n2\nthree\n")
    (tmp_path / "job").mkdir()
    pipeline = tmp_path / "lines.py"
    pipeline.write_text(RAISING)
    JobConfig("run", "lines", str(pipeline), settings={"input": str(tmp_path / "input")}).save(tmp_path / "job")
    said = []
    for status in (1, 2):
        driver = start_driver(tmp_path / "job", "lines")
        eventually(driver.ended, "the end of the driver")
        assert driver.process.returncode == status, driver.said()
        said.append(driver.said().splitlines()[-1])
    error = "ValueError: invalid literal for int() with base 10: 'three' at "
    assert "batch 0 failed, 1 of 2 times: " + error in said[0] and "lines.py:9 in parsed" in said[0]
    assert "batch 0 failed 2 times in a row: " + error in said[1] and "correct read()" in said[1]
