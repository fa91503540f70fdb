"""Positions of a channel are gapless, readable again until released, and never answered with anything else."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="pyarrow is not installed: nothing can decode segments")

import pyarrow as pa

from causal.errors import CorruptData, DeterminantsLost, OperatorFailed
from causal.storage.directory import Directory
from operators.ingest.contract import Segment, segment_name
from operators.ingest.ingest_log import IngestLog
from operators.ingest.reader import POLL_S, IngestReader

Batches = list[list[list[int]]]
"""Rows of each segment, of each partition, of each batch."""


class Publisher:
    """Publishes batches of rows {"n": 0, 1, 2 …} and knows what each channel must read.

    Args:
        directory: of the log; its parent exists.
    """

    def __init__(self, directory: Path, channels: int) -> None:
        self.directory = directory
        self.log = log_at(directory, channels)
        self.log.create()
        self.token = self.log.take_over()
        self.expected: list[list[int]] = [[] for _ in range(channels)]
        self.batch = 0
        self._count = 0

    def publish(self, partitions: list[list[int]]) -> None:
        segments = []
        for partition, sizes in enumerate(partitions):
            for part, rows in enumerate(sizes):
                numbers = list(range(self._count, self._count + rows))
                self._count += rows
                self.expected[partition % self.log.channels] += numbers
                name = segment_name(self.batch, partition, self.token, 0, part)
                segments.append(Segment(name, partition, part, rows, self.log.write_segment(name, encoded(numbers))))
        self.log.publish("q", self.batch, self.token, list(reversed(segments)))
        self.batch += 1

    def reader(self, channel: int = 0) -> IngestReader:
        return IngestReader(self.log, channel, "numbers")


def log_at(directory: Path, channels: int) -> IngestLog:
    """The log in a directory, whose parent exists."""
    return IngestLog(Directory(directory.parent), directory.name, channels)


def encoded(numbers: list[int]) -> memoryview:
    return stream_of(pa.array(numbers, pa.int64()))


def stream_of(column: pa.Array) -> memoryview:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"n": column})
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return memoryview(sink.getvalue())


def drained(reader: IngestReader, position: int = 0, count_max: int = 10) -> list[Any]:
    """Everything from `position` on that is published."""
    numbers = []
    while (read := reader.read(position, count_max)) is not None and not read.ended:
        assert 1 <= len(read.records) <= count_max
        assert isinstance(read.records, list)
        numbers += [record["n"] for record in read.records]
        position += len(read.records)
    return numbers


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path / "ingest", channels=2)


sizes = st.lists(st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=5), max_size=5)


@given(sizes, st.integers(1, 4), st.integers(1, 7), st.data())
def test_any_position_gives_what_follows_it(
    batches: Batches, channels: int, count_max: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        publisher = Publisher(Path(directory), channels)
        for batch in batches:
            publisher.publish(batch)
        for channel, expected in enumerate(publisher.expected):
            reader = publisher.reader(channel)
            assert drained(reader, 0, count_max) == expected
            position = data.draw(st.integers(0, len(expected)))
            assert drained(reader, position, count_max) == expected[position:]
            assert drained(publisher.reader(channel), position, count_max) == expected[position:]


@given(sizes, st.integers(1, 3), st.data())
def test_truncation_takes_nothing_that_may_be_asked_for(batches: Batches, channels: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        publisher = Publisher(Path(directory), channels)
        readers = [publisher.reader(channel) for channel in range(channels)]
        completed = [0] * channels
        for batch in batches:
            publisher.publish(batch)
            channel = data.draw(st.integers(0, channels - 1))
            drained(readers[channel], completed[channel])
            completed[channel] = data.draw(st.integers(completed[channel], len(publisher.expected[channel])))
            readers[channel].completed(completed[channel])
            if data.draw(st.booleans()):
                readers[channel] = publisher.reader(channel)
            for other, expected in enumerate(publisher.expected):
                assert drained(publisher.reader(other), completed[other]) == expected[completed[other] :]
        for channel, expected in enumerate(publisher.expected):
            assert drained(readers[channel], completed[channel]) == expected[completed[channel] :]


def test_a_log_covered_by_all_keeps_its_last_batch_only(publisher: Publisher) -> None:
    readers = [publisher.reader(channel) for channel in range(2)]
    for _ in range(5):
        publisher.publish([[3], [2]])
    for reader, expected in zip(readers, publisher.expected, strict=True):
        drained(reader)
        reader.completed(len(expected))
    assert publisher.log.batches() == [4]
    with pytest.raises(DeterminantsLost, match="position|released"):
        publisher.reader(0).read(2, 1)


def test_a_channel_without_rows_does_not_hold_files_back(publisher: Publisher) -> None:
    busy, idle = publisher.reader(0), publisher.reader(1)
    for _ in range(4):
        publisher.publish([[3]])
    assert idle.read(0, 1) is None
    idle.completed(0)
    drained(busy)
    busy.completed(12)
    assert publisher.log.batches() == [3]
    publisher.publish([[], [2]])
    assert drained(idle) == publisher.expected[1]


def test_what_is_not_there_yet_is_none_and_the_end_is_told(publisher: Publisher) -> None:
    reader = publisher.reader()
    assert reader.read(0, 5) is None
    assert reader.ready_in_s(0) == POLL_S
    publisher.publish([[2]])
    first = reader.read(0, 1)
    assert first is not None and len(first.records) == 1 and 0 < first.origin_ns <= time.monotonic_ns()
    assert reader.ready_in_s(1) == 0.0
    assert reader.read(2, 5) is None
    publisher.log.end(publisher.token)
    last = reader.read(2, 5)
    assert last is not None and last.ended and last.records == []
    assert drained(reader) == [0, 1]


def test_a_query_that_ends_without_any_batch_ends_the_partition(publisher: Publisher) -> None:
    publisher.log.end(publisher.token)
    read = publisher.reader().read(0, 5)
    assert read is not None and read.ended


def test_a_reader_may_be_opened_before_the_log_exists(tmp_path: Path) -> None:
    reader = IngestReader(log_at(tmp_path / "later", 1), 0, "numbers")
    assert reader.read(0, 5) is None
    publisher = Publisher(tmp_path / "later", channels=1)
    publisher.publish([[2]])
    assert drained(reader) == [0, 1]


def test_a_log_shorter_than_what_was_read_is_not_the_same_log(publisher: Publisher) -> None:
    publisher.publish([[2]])
    with pytest.raises(
        DeterminantsLost, match=r"source 'numbers', partition 0: the job has read up to 7, .* ends at 2"
    ):
        publisher.reader().read(7, 5)


def test_a_manifest_that_counts_wrong_is_noticed(publisher: Publisher) -> None:
    name = segment_name(0, 0, publisher.token, 0, 0)
    digest = publisher.log.write_segment(name, encoded([1, 2, 3]))
    publisher.log.publish("q", 0, publisher.token, [Segment(name, 0, 0, 5, digest)])
    with pytest.raises(CorruptData, match="contains 3 rows, but its manifest says 5"):
        publisher.reader().read(0, 5)


def test_a_value_that_no_record_holds_ends_the_job_with_one_line(tmp_path: Path) -> None:
    log = Publisher(tmp_path / "ingest", channels=1).log
    late = pa.array([2**62], pa.timestamp("us", tz="UTC"))  # Spark's years go up to 294247
    name = segment_name(0, 0, 1, 0, 0)
    log.publish("q", 0, 1, [Segment(name, 0, 0, 1, log.write_segment(name, stream_of(late)))])
    with pytest.raises(OperatorFailed) as refused:
        IngestReader(log, 0, "times").read(0, 1)
    assert str(refused.value) == (
        f"source 'times', partition 0: column n: {2**62} us since 1970 is not a time in years 1 to 9999; change "
        "or drop this value in read()"
    )
