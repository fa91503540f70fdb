"""A real Spark writes into a real S3 server; its host is lost, the store hangs, and each row is read once."""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")

from benchmarks.harness.processes import kill
from benchmarks.servers.process import NoServer
from benchmarks.servers.s3 import BUCKET, S3, s3_server
from causal.config import JobConfig
from causal.records.vectors import Vectors
from operators.ingest.ingest_log import IngestLog
from operators.ingest.place import IngestPlace
from operators.source import SourceContext
from operators.spark.spark_source import SparkSource
from tests.spark.conftest import WAIT_S, StartDriver, eventually
from tests.spark.test_driver import FILES_PER_BATCH, REST, gate_of, written_input, written_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    try:
        with s3_server() as server:
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
            yield server
    except NoServer as problem:
        pytest.skip(str(problem))


def rows_in_store(config: JobConfig, nowhere: Path) -> list[Any]:
    """Return every row of every partition, as tasks on a host without anything else read them."""
    source = SparkSource(lambda spark: spark)
    context = SourceContext("lines", nowhere, 0, True, config.store, config.place_in_store)
    rows: list[Any] = []
    for partition in range(source.partitions):
        reader = source.open(partition, context)
        end_s, position, read = time.monotonic() + WAIT_S, 0, None
        while read is None or not read.ended:
            assert time.monotonic() < end_s, f"partition {partition} stops at {position} without an end"
            time.sleep(reader.ready_in_s(position))
            read = reader.read(position, 64)
            if read is not None:
                assert not isinstance(read.records, Vectors)
                rows += read.records
                position += len(read.records)
        reader.close()
    return rows


@pytest.mark.campaign
def test_the_host_of_the_driver_is_lost_and_the_store_is_away_for_a_while(
    tmp_path: Path, start_driver: StartDriver, server: S3
) -> None:
    """The driver is killed with its disk, another one takes over, and waits for the store when that hangs."""
    expected = written_input(tmp_path / "input")
    first = written_job(tmp_path, FILES_PER_BATCH, tmp_path / "input")
    config = replace(JobConfig.load(first), store=f"s3://{BUCKET}/jobs")
    hosts = [tmp_path / name for name in ("host-a", "host-b", "host-c")]
    for host in hosts:
        host.mkdir()
        config.save(host)
    log: IngestLog = IngestPlace(tmp_path, "lines", 2, config.store, config.place_in_store).open()

    def published(batch: int) -> bool:
        return max(log.batches(), default=-1) >= batch

    driver = start_driver(hosts[0], "lines")
    eventually(lambda: driver.ended() or published(2), "three batches")
    driver.process.kill()
    assert driver.process.wait() == -signal.SIGKILL, driver.said()
    eventually(lambda: not driver.members(), "the end of all that the driver started")
    shutil.rmtree(hosts[0])

    seen = max(log.batches())
    driver = start_driver(hosts[1], "lines")
    eventually(lambda: driver.ended() or published(seen + 2), "two more batches, by a driver on another host")
    with server.away():
        eventually(lambda: driver.ended() or "ingestion waits: store s3://" in driver.said(), "a line about the store")
    seen = max(log.batches())
    eventually(lambda: driver.ended() or published(seen + 2), "two more batches, now that the store answers")
    for worker in driver.python_workers():
        kill(worker)
    gate_of(tmp_path).touch()
    eventually(driver.ended, "the end of the query")
    assert driver.process.returncode == 0, driver.said()

    rows = rows_in_store(config, tmp_path / "nowhere")
    assert Counter((row["file"], row["line"]) for row in rows) == expected
    assert all(row["rest"] == REST for row in rows)
    again = start_driver(hosts[2], "lines")
    assert again.process.wait() == 0, again.said()
