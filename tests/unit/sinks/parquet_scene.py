"""A Parquet sink under test: what a reader of ours sees, and what a reader of the bare files sees."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from causal.errors import PipelineError
from causal.ports import SinkStore
from operators.sinks.conformance import Subject
from operators.sinks.parquet.parquet_reading import ParquetOutput
from operators.sinks.parquet.parquet_sink import ParquetSink
from operators.sinks.parquet.parquet_store import ParquetStore
from tests.unit.sinks.test_conformance import locked_file


def rows_of(directory: Path, task: str = "out/0", uncovered: bool = True) -> list[Any]:
    """Return all rows of one task; their positions must follow one another but for what was refused."""
    output = ParquetOutput(directory)
    try:
        output.look()
    except PipelineError:
        return []
    batches = list(output.rows(task, 0, output.ends(uncovered).get(task, 0)))
    positions = [place for places, _ in batches for place in places.to_pylist()]
    assert positions == sorted(dict.fromkeys(positions))
    return [row for _, batch in batches for row in batch.to_pylist()]


def plain_rows(directory: Path) -> list[Any]:
    """Return what a foreign program reads: every `*.parquet` in the directory, whole files in any order."""
    return [row for path in sorted(directory.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


class Abandoning(ParquetSink):
    """Its stores let go of everything as a killed process does: rows stay in the journal."""

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        store = ParquetStore(self.settings, task)
        store.publish = lambda uncovered=False: None  # type: ignore[method-assign]
        return store


def subject_of(sink: ParquetSink) -> Subject:
    def half_a_record(task: str) -> None:
        journal = sink.directory / "_causal" / f"{task.replace('/', '-')}.journal"
        os.truncate(journal, journal.stat().st_size - 20)

    return Subject(
        sink,
        lambda task: rows_of(sink.directory, task),
        away=lambda: locked_file(sink.directory / "_causal" / "out-0.lock"),
        poison=lambda: {"task": "out/0", "n": "seven", "text": ""},
        tears=(half_a_record,) if isinstance(sink, Abandoning) else (),
    )


def parquet(directory: Path, **options: Any) -> Subject:
    return subject_of(ParquetSink(directory / "out", busy_ms=50, **options))


def parquet_abandoned_on_disk(directory: Path) -> Subject:
    return subject_of(Abandoning(directory / "out", busy_ms=50, durability="os"))


def parquet_in_small_files(directory: Path) -> Subject:
    return parquet(directory, publish_s=1e-9)
