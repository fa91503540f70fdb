"""The tasks of a `SparkSource`, in campaigns in executors, write into the store and have the run's modules.

Its driver, a Python worker and the task that reads are killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness.processes import kill
from benchmarks.harness.written import records_in

pytest.importorskip("pyspark", reason="PySpark is not installed: no cluster to test with")
pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")

from tests.faults.conftest import POOL
from tests.faults.job import HOME
from tests.faults.test_modes import readable_by_others
from tests.members import members
from tests.spark.test_job import PYTHON_WORKER, eventually, processes_of

WAIT_S = 600.0
COUNT, FILES = 250, 2
"""The rows of a file, too many for the driver to collect them as the first batch, and the files, a batch each."""
PIPELINE = """
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import SparkSource
import plus

def read(spark):
    from pyspark.sql.functions import udf
    frame = spark.readStream.schema("v long").option("maxFilesPerTrigger", 1).json("input")
    frame = frame.select(udf(plus.apply, "long")("v").alias("v"))
    return {frame}

pipeline = Pipeline("spark")
conf = {{"spark.executor.memory": "512m"}}
source = SparkSource(read, available_now=True, master={master!r}, conf=conf)
pipeline.source("in", source).sink("out", SqliteSink("out.db"))
"""


LOCAL, CLUSTER = "local[1,4]", "local-cluster[1,1,600]"
"""The tasks of Spark are threads of its driver, or run in an executor, which is a JVM more."""


def run(
    directory: Path, frame: str, master: str, meanwhile: Callable[[subprocess.Popen[str]], object], *options: str
) -> tuple[int, str]:
    """Run a job with a store whose source gives the numbers from 1; returns its status and output."""
    (directory / "job.py").write_text(PIPELINE.format(frame=frame, master=master))
    (directory / "plus.py").write_text("def apply(v):\n    return v + 1\n")
    (directory / "input").mkdir()
    for file in range(FILES):
        values = range(file * COUNT, (file + 1) * COUNT)
        (directory / "input" / f"{file}.json").write_text("".join(json.dumps({"v": v}) + "\n" for v in values))
    argv = [sys.executable, "-m", "deploy", "run", "job.py", "--state-dir", str(directory / "state")]
    argv += ["--store", f"file://{directory}/store", *POOL, *options]
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    with subprocess.Popen(argv, cwd=directory, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            meanwhile(process)
            said = process.communicate(timeout=WAIT_S)[1]
        finally:
            process.kill()
    return process.returncode, said


@pytest.mark.timeout(900)
@pytest.mark.parametrize("master", members([LOCAL, CLUSTER], LOCAL))
def test_spark_writes_into_the_store_while_driver_python_worker_and_source_are_killed(
    tmp_path: Path, master: str
) -> None:
    state = tmp_path / "state"

    def kill_both(run: subprocess.Popen[str]) -> None:
        eventually(lambda: processes_of(state, *PYTHON_WORKER), "a Python worker", run)
        assert readable_by_others(state) == {}
        for pid in (*processes_of(state, *PYTHON_WORKER), *processes_of(state, "spark_driver")):
            kill(pid)  # one of Python's may have ended on its own meanwhile

    status, said = run(tmp_path, "frame", master, kill_both, "--kill", "in/0@0.1", "--report", "report.json")
    logs = "\n".join(path.read_text()[-3000:] for path in (state / "logs").glob("*in*.log"))
    assert status == 0, f"{said}\n{logs}"
    assert sorted(row["v"] for row in records_in(tmp_path / "out.db")) == list(range(1, FILES * COUNT + 1))
    assert len(list((tmp_path / "store").glob("spark/*/ingest/in/manifests/*"))) >= FILES
    assert not (state / "ingest" / "in" / "segments").exists()
    assert readable_by_others(state) == {}
    assert "in/0" in {recovery["task"] for recovery in json.loads((tmp_path / "report.json").read_text())["recoveries"]}
    assert processes_of(state) == []


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_query_that_keeps_state_in_executors_ends_with_one_line(tmp_path: Path) -> None:
    status, said = run(tmp_path, "frame.dropDuplicates(['v'])", CLUSTER, lambda process: None)
    assert status != 0
    assert "read() keeps state (it aggregates, joins or removes duplicates)" in said
