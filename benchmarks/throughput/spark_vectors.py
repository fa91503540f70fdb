"""Measures what our tasks spend on rows that Spark reads, as dicts and as Arrow columns (`SparkSource(vectors=True)`).

`causal run` with standbys and checkpoints reads Parquet files through Spark; a round runs both forms.  `tasks_*`: CPU
time per record of the processes that are source, count and sink, from Spark's first micro-batch on; what Spark takes
is not in it.  `rps_*`: from the first record that a task saw to the last output; Spark
sets that pace.  `tasks_ratio`: CPU time on dicts ÷ on columns, within one round.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.measured import versions
from benchmarks.harness.profile_threads import ThreadTimes
from benchmarks.jobs import keyed_count
from benchmarks.peers.programs import inputs
from operators.sources.spark_source import ingest_directory

PIPELINE = runs.JOBS / "spark_count.py"
FORMS = ("rows", "vectors")
ROLES = ("rows", "count", "out")
"""The operators of the pipeline, by which processes are distinguished."""
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
        """CPU seconds of all tasks."""
        now = self._by_role()
        return sum(now.get(role, 0.0) - self._before.get(role, 0.0) for role in ROLES)

    def _by_role(self) -> dict[str, float]:
        return {role: sum(threads.values()) for role, threads in self.seconds().items()}


OPTIONS = (
    Option("files", 32, f"of {inputs.TABLE_ROWS:,} rows each"),
    Option("rounds", 3),
    Option("batch_elements_max", 65536, "rows per read"),
)


def _measure(run: Measurement) -> dict[str, int]:
    options = run.options
    run.more["versions"] = versions(*NEEDED, extra="spark")
    with tempfile.TemporaryDirectory(prefix="causal-parquet-") as name:
        _write(Path(name), options.files)
        for number in run.rounds():
            for form in FORMS:
                cpu_us, rps = _run(form, Path(name), options)
                run.add(f"tasks_{form}_cpu_us", cpu_us)
                run.add(f"rps_{form}", rps)
                run.report(f"round {number}, {form}: {cpu_us:.3f} µs per record, {rps:,.0f} records/s")
            run.add("tasks_ratio", run.last("tasks_rows_cpu_us") / run.last("tasks_vectors_cpu_us"))
    return {"records": options.files * inputs.TABLE_ROWS}


def _write(place: Path, files: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = inputs.table()
    columns = pa.table({"k": [key for key, _ in rows], "v": [value for _, value in rows]})
    for number in range(files):
        pq.write_table(columns, place / f"part-{number:04}.parquet")


def _run(form: str, files: Path, options: argparse.Namespace) -> tuple[float, float]:
    """(CPU µs per record of the tasks, records/s) of one run."""
    records = options.files * inputs.TABLE_ROWS
    report = runs.tallied_job(
        PIPELINE,
        {"form": form, "files": files},
        records,
        config={"batch_elements_max": options.batch_elements_max},
        limit_s=LIMIT_S,
        beside=SinceFirstBatch,
    )
    cpu_s = report["beside"].tasks_s()
    if cpu_s <= 0:
        raise runs.RunFailed("no task was seen while it ran; give more --files")
    return cpu_s / records * 1e6, float(report["throughput_rps"])


BENCHMARK = Benchmark(
    "spark_vectors", OPTIONS, _measure, digits_of={f"rps_{form}": 0 for form in FORMS}, settings=keyed_count.SHAPE
)
