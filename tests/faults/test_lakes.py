"""Tables of a real job whose tasks are killed: each row once, for us immediately, for others in whole versions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (extra delta)")
pytest.importorskip("pyiceberg", reason="pyiceberg is not installed (extra iceberg)")

import duckdb
import pyarrow as pa

from operators.sinks.lake.lake_reading import read
from operators.sinks.lake.lake_sink import LakeSink
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES
from tests.members import campaign
from tests.unit.sinks.lake_scene import FORMATS, table_of

COUNT, KEYS = 400, 23
KILLS = (("rows/0",), ("rows/1", "number/0"), ("rows/0", "rows/1"), ("rows/0", "rows/1", "number/1"))


@contextmanager
def begun(start: Start, directory: Path, format: str) -> Iterator[tuple[Any, LakeSink, Path]]:
    gate = directory / "gate"
    sink = FORMATS[format](directory)
    where = directory / "table" if format == "delta" else directory
    values = {"format": format, "where": where, "count": COUNT, "rate": 150, "gate": gate}
    arguments = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    config = {"crash_loop_max": 100}
    yield start(PIPELINES / "lake.py", *arguments, "--checkpoint-interval", "0.4", config=config), sink, gate


def expect_all(rows: pa.Table) -> None:
    assert duckdb.sql("SELECT count(*), count(DISTINCT (p, i)), min(i), max(i) FROM rows").fetchall() == [
        (2 * COUNT, 2 * COUNT, 0, COUNT - 1)
    ]
    wrong = duckdb.sql("SELECT k FROM rows GROUP BY k HAVING max(n) != count(*) OR count(DISTINCT n) != count(*)")
    assert not wrong.fetchall()
    assert not duckdb.sql("SELECT n FROM rows WHERE late IS DISTINCT FROM (CASE WHEN n > 20 THEN n END)").fetchall()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("killed", [pytest.param(KILLS[2:], id="together"), campaign(KILLS * 5, id="often")])
def test_tasks_that_are_killed_again_and_again_write_each_row_once(
    format: str, killed: tuple[tuple[str, ...], ...], start: Start, tmp_path: Path
) -> None:
    with begun(start, tmp_path, format) as (job, sink, gate):
        job.until_warm(records=200)
        seen: dict[tuple[int, int], float] = {}
        for tasks in killed:
            job.replace(*tasks)
            now = {(row["p"], row["i"]): row["dice"] for row in read(sink.output()).to_pylist()}
            assert seen.items() <= now.items(), "what was there once stays as it was"
            seen = now
        job.kill_everything()
        job.start("--resume")
        gate.touch()
        job.finish_well()
        rows = table_of(sink)
        expect_all(rows)
        assert read(sink.output()).num_rows == 2 * COUNT
        final = {(row["p"], row["i"]): row["dice"] for row in rows.to_pylist()}
        assert seen.items() <= final.items()


def test_only_processes_of_the_sink_load_the_library(start: Start, tmp_path: Path) -> None:
    with begun(start, tmp_path, "delta") as (job, sink, gate):
        job.until_written(20)
        tasks = ("rows/0", "rows/1", "number/0", "number/1", "s0/0")
        loaded = [task for task in tasks if "deltalake" in Path(f"/proc/{job.pid_of(task)}/maps").read_text()]
        assert loaded == ["rows/0", "rows/1"]
        gate.touch()
        job.finish_well()


READ_BY_SPARK = """
import sys
from operators.spark.session import spark_session

with spark_session("local[1]") as spark:
    print(spark.read.parquet(*sys.argv[1:]).select("p", "i").distinct().count())
"""


@pytest.mark.campaign
def test_spark_reads_the_files_that_a_table_names(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    with begun(start, tmp_path, "delta") as (job, sink, gate):
        gate.touch()
        job.finish_well()
        files = [f"{tmp_path}/table/{name}" for name in _names(sink)]
        read = subprocess.run([sys.executable, "-c", READ_BY_SPARK, *files], capture_output=True, text=True, check=True)
        assert int(read.stdout.split()[-1]) == 2 * COUNT


def _names(sink: LakeSink) -> list[str]:
    table = sink.table()
    table.open(False)
    table.look()
    return table.names()
