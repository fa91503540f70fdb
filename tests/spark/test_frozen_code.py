"""Spark's driver and its Python workers run the code that the run was started with, whatever the files hold by then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.written import records_in
from tests.faults.job import HOME

WAIT_S = 600.0

PIPELINE = """
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import SparkSource
import plus

def read(spark):
    from pyspark.sql.functions import udf
    import edits
    edits.edit()
    frame = spark.readStream.schema("v long").json("input")
    return frame.select(udf(plus.apply, "long")("v").alias("v"))

pipeline = Pipeline("spark")
pipeline.source("in", SparkSource(read, available_now=True)).sink("out", SqliteSink("out.db"))
"""
EDITS = """
from pathlib import Path

def edit():
    here = Path(__file__).parent
    (here / "plus.py").write_text("raise SystemExit('edited')")
    (here / "lazily.py").write_text("raise SystemExit('edited')")
"""


@pytest.mark.timeout(900)
@pytest.mark.campaign
def test_an_edit_reaches_neither_the_driver_nor_its_python_workers(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PIPELINE)
    (tmp_path / "edits.py").write_text(EDITS)
    (tmp_path / "plus.py").write_text("def apply(v):\n    import lazily\n    return v + lazily.ONE\n")
    (tmp_path / "lazily.py").write_text("ONE = 1\n")
    for name in ("random", "queue", "operators", "socketserver"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hidden')\n")
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.json").write_text("".join(json.dumps({"v": v}) + "\n" for v in range(50)))
    ended = subprocess.run(
        [sys.executable, "-m", "deploy", "run", "job.py", "--state-dir", "state"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HOME), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    logs = "\n".join(path.read_text()[-3000:] for path in (tmp_path / "state" / "logs").glob("in-driver*.log"))
    assert ended.returncode == 0, f"{ended.stderr}\n{logs}"
    assert sorted(row["v"] for row in records_in(tmp_path / "out.db")) == list(range(1, 51))
    assert "edited" in (tmp_path / "plus.py").read_text()
