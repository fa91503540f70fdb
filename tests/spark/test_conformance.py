"""SparkSource keeps every promise of the kit for sources that can be checked without an end of Spark.

What Spark itself does when it is killed, test_driver.py has: rows are in the log once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from causal.config import JobConfig
from operators.ingest.place import IngestPlace
from operators.sources import SparkSource, conformance
from operators.sources.conformance import Subject
from tests.spark.conftest import Driver

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(900)]

PIPELINE = """
from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import SparkSource

pipeline = Pipeline("lines")

def read(spark):
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(pipeline.settings["input"])
    return lines.selectExpr("value AS line", "length(value) AS length")

pipeline.source("source", SparkSource(read, available_now=True)).sink("out", JsonLinesSink("out"))
"""


@pytest.fixture(scope="module")
def ended_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a job whose query has ended."""
    directory = tmp_path_factory.mktemp("spark")
    for file in range(8):
        (directory / "input").mkdir(exist_ok=True)
        (directory / "input" / f"{file}.txt").write_text("".join(f"{file} {'ü' * n}\n" for n in range(9)))
    (directory / "lines.py").write_text(PIPELINE)
    job = directory / "job"
    job.mkdir()
    JobConfig("run", "lines", str(directory / "lines.py"), settings={"input": str(directory / "input")}).save(job)
    driver = Driver(job, "source", directory / "driver.log", dict(os.environ))
    try:
        assert driver.process.wait(600) == 0, driver.said()
        yield job
    finally:
        driver.end()


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_the_source_keeps_every_promise(check: Callable[[Subject], None], ended_job: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(ended_job, job)
    subject = Subject(lambda: SparkSource(lambda spark: spark), lambda partition: stored(job, partition), job)
    assert sum(len(subject.holds(partition)) for partition in subject.partitions()) == 72
    check(subject)


def stored(job: Path, partition: int) -> list[Any]:
    """Return the rows of a partition in the order of its batches and segments, as Arrow reads them."""
    import pyarrow as pa

    log = IngestPlace(job, "source", 2).open()
    manifests = [manifest for batch in log.batches() if (manifest := log.manifest(batch)) is not None]
    segments = [segment for manifest in manifests for segment in manifest.of_channel(partition)]
    return [
        row
        for segment in segments
        if segment.rows
        for row in pa.ipc.open_stream(log.supply([segment])).read_all().to_pylist()
    ]
