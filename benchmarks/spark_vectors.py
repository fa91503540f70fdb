"""What our tasks spend on rows that Spark reads, as dicts and as Arrow columns (`SparkSource(vectors=True)`).

`causal run` with standbys and checkpoints reads Parquet files through Spark; a round runs both forms.  `tasks_*`: CPU
time per record of the processes that are source, count and sink, from Spark's first micro-batch on; what Spark takes
is not in it.  `rps_*`: from the first record that a task saw to the last output; Spark
sets that pace.  `tasks_ratio`: CPU time on dicts ÷ on columns, within one round.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import runs
from benchmarks.keyed_count import TABLE_ROWS, table
from benchmarks.measured import figure, result
from benchmarks.profile_threads import ThreadTimes
from benchmarks.throughput import tallied
from operators.sources.spark import ingest_directory

PIPELINE = Path(__file__).parent / "spark_count.py"
FORMS = ("rows", "vectors")
ROLES = ("rows", "count", "out")
"""The operators of the pipeline, by which processes are told apart."""
LIMIT_S = 300.0
NEEDED = ("pyspark", "pyarrow", "pandas")


class SinceFirstBatch(ThreadTimes):
    """CPU time from the last look at which Spark had published nothing yet."""

    def __init__(self, job: Path) -> None:
        super().__init__(job)
        self._manifests = ingest_directory(job, ROLES[0]) / "manifests"
        self._before: dict[str, float] = {}

    def look(self) -> None:
        """Note what every thread has used so far."""
        began = self._manifests.is_dir() and any(self._manifests.glob("*.json"))
        super().look()
        if not began:
            self._before = self._by_role()

    def tasks_s(self) -> float:
        """Of all tasks."""
        now = self._by_role()
        return sum(now.get(role, 0.0) - self._before.get(role, 0.0) for role in ROLES)

    def _by_role(self) -> dict[str, float]:
        return {role: sum(threads.values()) for role, threads in self.seconds().items()}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--files", type=int, default=32, help=f"of {TABLE_ROWS:,} rows each (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--batch-elements-max", type=int, default=65536, help="rows per read (default: %(default)s)")


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all rounds; returns the common form.

    Raises:
        RunFailed: a run failed, counted other rows than were given, or Spark is not installed here.
    """
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        raise runs.RunFailed(f"{', '.join(missing)} is not installed; run `pip install 'causal-streams[spark]'`")
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="causal-parquet-") as name:
        _write(Path(name), options.files)
        for number in range(options.rounds):
            cpu_us = {}
            for form in FORMS:
                cpu_us[form], rps = _run(form, Path(name), options)
                found.setdefault(f"tasks_{form}_cpu_us", []).append(cpu_us[form])
                found.setdefault(f"rps_{form}", []).append(rps)
                tell(f"round {number + 1}, {form}: {cpu_us[form]:.3f} µs per record, {rps:,.0f} records/s")
            found.setdefault("tasks_ratio", []).append(cpu_us["rows"] / cpu_us["vectors"])
    settings = {
        "records": options.files * TABLE_ROWS,
        "files": options.files,
        "rounds": options.rounds,
        "keys": 9999,
        "partitions": 2,
        "parallelism": 2,
        "batch_elements_max": options.batch_elements_max,
    }
    figures = {name: figure(values, 0 if name.startswith("rps") else 3) for name, values in found.items()}
    told = result("spark_vectors", command, settings, figures)
    told["versions"] |= {name: version(name) for name in NEEDED}
    return told


def _write(place: Path, files: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = table()
    columns = pa.table({"k": [key for key, _ in rows], "v": [value for _, value in rows]})
    for number in range(files):
        pq.write_table(columns, place / f"part-{number:04}.parquet")


def _run(form: str, files: Path, options: argparse.Namespace) -> tuple[float, float]:
    """(CPU µs per record of the tasks, records/s) of one run."""
    watching: list[SinceFirstBatch] = []

    def watch(job: Path) -> SinceFirstBatch:
        watching.append(SinceFirstBatch(job))
        return watching[-1]

    report = runs.job(
        PIPELINE, {"form": form, "files": files}, (), {"batch_elements_max": options.batch_elements_max}, tallied,
        LIMIT_S, watch,
    )  # fmt: skip
    records = options.files * TABLE_ROWS
    if report["checked"] != records:
        raise runs.RunFailed(f"the sink holds {report['checked']} rows of {records}")
    cpu_s = watching[0].tasks_s()
    if cpu_s <= 0:
        raise runs.RunFailed("no task was seen while it ran; give more --files")
    return cpu_s / records * 1e6, float(report["throughput_rps"])
