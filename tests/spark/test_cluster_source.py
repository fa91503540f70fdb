"""The tasks of a `SparkSource` run in executors of their own, which write into the store and have the run's modules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.written import records_in

pytest.importorskip("pyspark", reason="PySpark is not installed: no cluster to test with")
pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")

from tests.faults.conftest import POOL
from tests.faults.job import HOME

WAIT_S = 600.0
PIPELINE = """
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import SparkSource
import plus

def read(spark):
    from pyspark.sql.functions import udf
    frame = spark.readStream.schema("v long").json("input")
    frame = frame.select(udf(plus.apply, "long")("v").alias("v"))
    return {frame}

pipeline = Pipeline("spark")
conf = {{"spark.executor.memory": "512m"}}
source = SparkSource(read, available_now=True, master="local-cluster[1,2,600]", conf=conf)
pipeline.source("in", source).sink("out", SqliteSink("out.db"))
"""


def run(directory: Path, frame: str) -> subprocess.CompletedProcess[str]:
    """Runs a job with a store whose source gives 1 to 500: too many for the driver to collect."""
    (directory / "job.py").write_text(PIPELINE.format(frame=frame))
    (directory / "plus.py").write_text("def apply(v):\n    return v + 1\n")
    (directory / "input").mkdir()
    (directory / "input" / "a.json").write_text("".join(json.dumps({"v": v}) + "\n" for v in range(500)))
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "deploy",
            "run",
            "job.py",
            "--state-dir",
            "state",
            "--store",
            f"file://{directory}/store",
            *POOL,
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(HOME)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


@pytest.mark.timeout(900)
def test_executors_write_into_the_store(tmp_path: Path) -> None:
    ended = run(tmp_path, "frame")
    logs = "\n".join(path.read_text()[-3000:] for path in (tmp_path / "state" / "logs").glob("*in*.log"))
    assert ended.returncode == 0, f"{ended.stderr}\n{logs}"
    assert sorted(row["v"] for row in records_in(tmp_path / "out.db")) == list(range(1, 501))
    assert list((tmp_path / "store").glob("spark/*/ingest/in/manifests/*"))
    assert not (tmp_path / "state" / "ingest" / "in" / "segments").exists()


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_query_that_keeps_state_in_executors_ends_with_one_line(tmp_path: Path) -> None:
    ended = run(tmp_path, "frame.dropDuplicates(['v'])")
    assert ended.returncode != 0
    assert "read() keeps state (it aggregates, joins or removes duplicates)" in ended.stderr
