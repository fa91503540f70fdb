"""A `SparkSource` names its requirements, and needs no Spark to be imported, planned or read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from causal.errors import CorruptData, PipelineError
from causal.process.interpreter import on_this_host
from causal.storage.shared import Depot
from operators.code_archive.archive import Archive, Module
from operators.source import SourceContext
from operators.spark import daemon as spark_daemon
from operators.spark import spark_source
from operators.spark.driver import sockets
from operators.spark.spark_source import SparkSource


def read(session: Any) -> Any:
    return session


def test_importing_it_imports_neither_spark_nor_arrow() -> None:
    unwanted = "{'pyspark', 'pyarrow', 'pandas'}"
    program = f"import operators.spark.spark_source, sys; sys.exit(bool({unwanted} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])


def test_a_partition_has_nothing_before_the_driver_has_run(tmp_path: Path) -> None:
    source = SparkSource(read, partitions=3)
    reader = source.open(2, SourceContext("docs", tmp_path, 0))
    assert reader.read(0, 10) is None
    reader.completed(0)
    reader.close()
    assert list(tmp_path.iterdir()) == []


def test_the_driver_is_a_companion_that_runs_with_the_python_and_in_the_job_of_its_host(tmp_path: Path) -> None:
    (companion,) = SparkSource(read).companions("docs", Path("/on/the/supervisor"))
    argv = on_this_host(companion.argv, tmp_path)
    assert list(argv) == [sys.executable, "-P", "-m", "operators.spark.driver", str(tmp_path), "docs"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rows": 3}, "SparkSource has no option max_rows; the known options are trigger, available_now"),
        ({"partitions": 0}, "partitions is 0; use 1 to 1024"),
        ({"trigger": "soon"}, "trigger is 'soon'; use an interval like '200 milliseconds'"),
        ({"output_mode": "complete"}, "output_mode is 'complete', but only append is supported; aggregate in"),
        ({"output_mode": "update"}, "output_mode is 'update', but only append is supported; aggregate in"),
        ({"batch_rows_max": 0}, "batch_rows_max is 0"),
    ],
)
def test_a_wrong_option_is_refused_where_it_is_written(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        SparkSource(read, **options)


@pytest.mark.parametrize(
    ("runtime", "master", "used"),
    [
        ("/tmp/causal-1", "local[2,4]", True),
        ("/tmp/causal-1", "spark://10.0.0.1:7077", False),
        ("/tmp/" + "x" * 59, "local", True),
        ("/tmp/" + "x" * 60, "local", False),
        (None, "local", False),
    ],
)
def test_spark_and_its_workers_have_sockets_in_files_where_their_paths_are_short_enough(
    tmp_path: Path, runtime: str | None, master: str, used: bool
) -> None:
    if runtime is not None:
        (tmp_path / "runtime").write_text(runtime)
    entries = sockets(SparkSource(read, master=master), tmp_path)
    assert entries.get("spark.python.unix.domain.socket.dir") == (runtime if used else None)
    assert bool(entries) == used


def test_something_else_than_a_function_is_refused() -> None:
    with pytest.raises(PipelineError, match="takes a function read"):
        SparkSource("/data")  # type: ignore[arg-type]


def test_an_executor_without_the_job_has_its_modules_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")
    archive = Archive(
        (Module("", "/home/me/job.py", False, b"import plus"), Module("plus", "/p.py", False, b"ONE = 1"))
    )
    url = f"file://{tmp_path}/store"
    Depot(url, "job/run").create(f"code/{archive.digest}.zip", archive.packed())
    monkeypatch.setenv(spark_daemon.PLACE, "job/run")
    assert spark_daemon.fetched(url, archive.digest).modules == archive.modules
    with pytest.raises(CorruptData, match="the code of the run cannot be read"):
        spark_daemon.fetched(url, "0" * 32)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_source, "find_spec", lambda name: None if name == "pyarrow" else object())
    with pytest.raises(PipelineError, match="SparkSource needs pyarrow; run `pip install "):
        SparkSource(read).check()
