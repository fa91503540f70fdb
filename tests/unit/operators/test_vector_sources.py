"""Segments of the ingest log as vectors: the rows that dicts would have, and the same bytes from any position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no vectors")
pytest.importorskip("numpy", reason="NumPy is not installed: there are no vectors")

import pyarrow as pa

from benchmarks.jobs import keyed_vectors
from benchmarks.peers.programs import inputs
from causal.errors import OperatorFailed
from causal.records.rows import joined
from causal.records.vectors import Vectors
from operators.ingest.contract import Segment, segment_name
from operators.ingest.ingest_log import IngestLog
from operators.ingest.reader import IngestReader
from operators.sources import SourceContext, SparkSource
from tests.unit.ingest.test_ingest_reader import log_at

COLUMNS = {
    "n": pa.array(range(9)),
    "text": pa.array([b"a", b"\xff", None] * 3).cast(pa.binary()).view(pa.string()),
    "at": pa.array(range(9), pa.timestamp("us", "UTC")),
    "flag": pa.array([True, None, False] * 3),
}


def published(directory: Path, columns: dict[str, Any]) -> IngestLog:
    """Return a log with these rows in one segment of several Arrow batches."""
    directory.parent.mkdir(exist_ok=True)
    log = log_at(directory, 1)
    log.create()
    token, name, sink = log.take_over(), segment_name(0, 0, 1, 0, 0), pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        for batch in table.to_batches(max_chunksize=4):
            stream.write_batch(batch)
    segment = Segment(name, 0, 0, table.num_rows, log.write_segment(name, memoryview(sink.getvalue())))
    log.publish("q", 0, token, [segment])
    return log


def test_vectors_have_the_rows_of_the_log(tmp_path: Path) -> None:
    log = published(tmp_path / "ingest" / "in", COLUMNS)
    source = SparkSource(lambda spark: None, 1, vectors=True)
    assert source.vectors
    reader = source.open(0, SourceContext("in", tmp_path, 0))
    rows = IngestReader(log, 0, "in").read(0, 100)
    whole = reader.read(0, 100)
    assert rows is not None and whole is not None and isinstance(whole.records, Vectors)
    assert whole.records.batch.to_pylist() == rows.records
    for cut in range(1, 9):
        pieces: list[Any] = [reader.read(0, cut), reader.read(cut, 100)]
        assert joined([piece.records for piece in pieces]).encode() == whole.records.encode()
        assert [len(piece.records) for piece in pieces] == [cut, 9 - cut]


def test_a_column_that_vectors_cannot_hold_is_named(tmp_path: Path) -> None:
    log = published(tmp_path / "in", {"words": pa.array([["a"], ["b"]])})
    reader = IngestReader(log, 0, "in", vectors=True)
    with pytest.raises(OperatorFailed, match=r"source 'in', partition 0: column 'words': vectors cannot hold list"):
        reader.read(0, 1)


@pytest.mark.parametrize("start", [0, 5, inputs.TABLE_ROWS - 3])
def test_the_benchmark_reads_the_same_rows_in_both_forms(start: int) -> None:
    for partition in (0, 1):
        expected = inputs.rows(partition, start, start + 7)
        assert [
            tuple(row.values()) for row in keyed_vectors.slices(partition, start, start + 7).to_pylist()
        ] == expected
