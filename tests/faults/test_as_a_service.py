"""A job as a service: SIGTERM may end it at a savepoint, and its exit status says whether a new start can help."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in
from tests.faults.conftest import Start
from tests.faults.job import NUMBERED
from tests.unit.sinks.test_conformance import locked_database

PIPELINE = """
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

def shown(record):
    return {**record, "version": 1}

pipeline = Pipeline("service")
source = GeneratedSource(lambda p, i: {"i": i}, count=int(pipeline.settings.get("count", 10**9)), rate=500)
pipeline.source("numbers", source).map("shown", shown).sink("out", SqliteSink("out.db"))
"""
TEMPORARY = 75


@pytest.mark.campaign
def test_other_code_resumes_after_a_sigterm_that_ends_at_a_savepoint(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "service.py"
    path.write_text(PIPELINE)
    job = start(path, "--savepoint-on-sigterm")
    job.until_warm(records=100)
    os.kill(job.root, signal.SIGTERM)
    status, said = job.finish()
    assert status == 0 and "SIGTERM: the job ends at a savepoint" in said, said
    assert "stopped at savepoint" in job.printed
    before = list(records_in(tmp_path / "out.db"))
    path.write_text(PIPELINE.replace('"version": 1', '"version": 2'))
    job.start("--resume", *sets(count=len(before) + 200))
    job.finish_well()
    rows = list(records_in(tmp_path / "out.db"))
    assert [row["i"] for row in rows] == list(range(len(before) + 200))
    assert [row["version"] for row in rows] == [1] * len(before) + [2] * 200


def test_a_second_sigterm_does_not_wait_for_the_savepoint(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "service.py"
    path.write_text(PIPELINE)
    job = start(path, "--savepoint-on-sigterm", "--guarantee", "none")  # it has no savepoints
    job.until_written(10)
    os.kill(job.root, signal.SIGTERM)
    status, said = job.finish()
    assert status == 128 + signal.SIGTERM and "SIGTERM: no savepoint: guarantee none has no checkpoints" in said


def test_a_store_that_stays_unavailable_may_be_tried_again(start: Start, tmp_path: Path) -> None:
    settings = sets(sink="sticking", count=6000, gate=tmp_path / "gate")
    job = start(NUMBERED, *settings, "--temporary-status", str(TEMPORARY), config={"sink_retry_timeout_s": 1.5})
    job.until_warm(records=50)
    with locked_database(tmp_path / "out.db"):
        status, said = job.finish()
    assert status == TEMPORARY and "sink_retry_timeout_s" in said


@pytest.mark.campaign
def test_code_that_fails_again_has_the_status_that_no_service_retries(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "service.py"
    path.write_text(PIPELINE.replace('"version": 1', '"version": 1 // (record["i"] - 5)'))
    status, said = start(path, "--temporary-status", str(TEMPORARY)).finish()
    assert status == 1 and "ZeroDivisionError" in said
