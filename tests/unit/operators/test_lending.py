"""A log that is lent gives the rows that its job has, also while the job publishes and releases them."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from operators.ingest.lending import lend_log
from operators.ingest.log_writer import LogWriter
from operators.ingest.place import IngestPlace
from operators.ingest.reader import IngestReader


def segment(first: int, rows: int) -> bytes:
    table = pa.table({"n": list(range(first, first + rows))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def refused(*_: object) -> None:
    raise OSError(18, "another file system")


@pytest.mark.parametrize("links", [True, False], ids=["links", "another file system"])
@pytest.mark.parametrize("seed", range(6))
def test_a_lent_log_has_what_the_recording_keeps(
    tmp_path: Path, seed: int, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lend() -> None:
        with monkeypatch.context() as broken:
            if not links:
                broken.setattr(os, "link", refused)
            lend_log("in", job.job_directory, lent.job_directory)

    chance, job, lent = Random(seed), IngestPlace(tmp_path / "job", "in", 1), IngestPlace(tmp_path / "lent", "in", 1)
    job.job_directory.mkdir()
    writer = LogWriter(job.open(), "rows")
    lend()
    writer.stage(segment(0, 1), 1)
    writer.publish_staged("")
    job.open().record([0])
    end, kept, done = 1, 0, 0
    released = IngestReader(job.open_to_read(0), 0, "in")
    for _ in range(30):
        act = chance.choice(["publish", "publish", "release", "keep", "lend"])
        if act == "publish":
            rows = chance.randint(0, 20)
            writer.stage(segment(end, rows), rows)
            writer.publish_staged("")
            end += rows
        elif act == "release" and end:
            done = chance.randint(done, end)
            released.read(min(done, end - 1), 1)
            released.completed(done)
        elif act == "keep":
            kept = chance.randint(kept, max(kept, done))
            job.open().record([kept])
        else:
            before = {path: path.stat().st_ino for path in job.directory.rglob("*")}
            lend()
            reader, position = IngestReader(lent.open_to_read(0), 0, "in"), kept
            while position < end:
                read = reader.read(position, 7)
                assert read is not None
                records: list[dict[str, int]] = list(read.records)  # type: ignore[arg-type]
                assert [row["n"] for row in records] == list(range(position, position + len(records)))
                position += len(records)
            assert {path: path.stat().st_ino for path in job.directory.rglob("*")} == before
