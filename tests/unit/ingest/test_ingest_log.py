"""Batches are published once, by the youngest driver of one query, and never change."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from causal.errors import CorruptData, Fenced, PipelineError, Unavailable
from operators.ingest import directory_log as ingest_directory
from operators.ingest.contract import Segment, segment_name
from operators.ingest.directory_log import DirectoryLog

QUERY = "6ba7b810"


@pytest.fixture
def log(tmp_path: Path) -> DirectoryLog:
    log = DirectoryLog(tmp_path / "ingest", channels=2)
    log.create()
    return log


def written(log: DirectoryLog, batch: int, token: int, rows: tuple[int, ...], attempt: int = 0) -> list[Segment]:
    """Return one segment for each Spark partition."""
    segments = []
    for partition, count in enumerate(rows):
        name = segment_name(batch, partition, token, attempt, 0)
        digest = log.write_segment(name, f"{batch} {partition} {attempt}".encode())
        segments.append(Segment(name, partition, 0, count, digest))
    return segments


def files(log: DirectoryLog) -> list[str]:
    return sorted(path.name for path in log.segments.iterdir())


def test_counts_per_channel_go_on_from_batch_to_batch(log: DirectoryLog) -> None:
    token = log.take_over()
    for batch, rows in enumerate([(3, 5, 7), (), (1,)]):
        assert log.publish(QUERY, batch, token, written(log, batch, token, rows))
    manifests = [log.manifest(batch) for batch in log.batches()]
    assert [manifest.before for manifest in manifests if manifest] == [(0, 0), (10, 5), (10, 5)]
    assert manifests[2] is not None and manifests[2].after() == (11, 5)
    assert manifests[0] is not None
    assert [segment.partition for segment in manifests[0].of_channel(0)] == [0, 2]


def test_a_batch_published_again_keeps_the_first_and_removes_the_second(log: DirectoryLog) -> None:
    token = log.take_over()
    first = written(log, 0, token, (2, 2), attempt=0)
    assert log.publish(QUERY, 0, token, first, offsets="same")
    again = written(log, 0, token, (2, 2), attempt=7)
    assert not log.publish(QUERY, 0, token, again, offsets="same")
    manifest = log.manifest(0)
    assert manifest is not None and list(manifest.segments) == first
    assert files(log) == sorted(segment.file for segment in first)


def test_a_driver_that_was_replaced_cannot_publish_or_end(log: DirectoryLog) -> None:
    old = log.take_over()
    segments = written(log, 0, old, (1,))
    young = log.take_over()
    with pytest.raises(Fenced, match=f"driver {old} was replaced by driver {young}"):
        log.publish(QUERY, 0, old, segments)
    with pytest.raises(Fenced):
        log.end(old)
    assert log.batches() == [] and log.ended() is None
    assert log.publish(QUERY, 0, young, written(log, 0, young, (1,)))


def test_taking_over_removes_what_nobody_published_and_nothing_else(log: DirectoryLog) -> None:
    token = log.take_over()
    kept = written(log, 0, token, (1, 1))
    log.publish(QUERY, 0, token, kept)
    written(log, 1, token, (4,))
    (log.segments / ".0000000001-00001-1-0-0.arrow").write_bytes(b"half")
    log.take_over()
    assert files(log) == sorted(segment.file for segment in kept)


def test_abort_after_a_commit_leaves_what_is_published(log: DirectoryLog) -> None:
    token = log.take_over()
    segments = written(log, 0, token, (1,))
    log.publish(QUERY, 0, token, segments)
    lost = written(log, 1, token, (1,))
    log.discard([*segments, *lost])
    assert files(log) == [segments[0].file]


def test_another_query_is_refused(log: DirectoryLog) -> None:
    token = log.take_over()
    log.check_query("")
    log.publish(QUERY, 0, token, [])
    log.check_query(QUERY)
    for other in ("", "another"):
        with pytest.raises(PipelineError, match=f"holds the batches of query {QUERY}"):
            log.check_query(other)
    with pytest.raises(PipelineError, match="Spark checkpoint was removed or replaced"):
        log.publish("another", 1, token, [])


def test_other_input_for_a_published_batch_is_refused(log: DirectoryLog) -> None:
    token = log.take_over()
    log.publish(QUERY, 0, token, [], offsets="one")
    with pytest.raises(PipelineError, match="checkpoint was rolled back"):
        log.publish(QUERY, 0, token, [], offsets="two")


def test_a_batch_out_of_turn_is_refused(log: DirectoryLog) -> None:
    token = log.take_over()
    with pytest.raises(PipelineError, match="commits batch 3, the last is none"):
        log.publish(QUERY, 3, token, [])
    log.publish(QUERY, 0, token, [])
    with pytest.raises(PipelineError, match="commits batch 2, the last is 0"):
        log.publish(QUERY, 2, token, [])


def test_nothing_follows_the_end(log: DirectoryLog) -> None:
    token = log.take_over()
    log.publish(QUERY, 0, token, [])
    log.end(token)
    assert log.ended() == 1
    with pytest.raises(PipelineError, match="has ended"):
        log.publish(QUERY, 1, token, [])
    assert not log.publish(QUERY, 0, token, [])


@pytest.mark.parametrize("damage", ["torn", "flipped", "empty"])
def test_a_damaged_manifest_is_never_used(log: DirectoryLog, damage: str) -> None:
    token = log.take_over()
    log.publish(QUERY, 0, token, written(log, 0, token, (1,)))
    path = log.directory / "manifests" / "0000000000.json"
    data = path.read_bytes()
    path.write_bytes({"torn": data[:-20], "flipped": data.replace(b'"rows":1', b'"rows":2'), "empty": b""}[damage])
    with pytest.raises(CorruptData, match="0000000000.json does not match its digest"):
        log.manifest(0)
    with pytest.raises(CorruptData):
        log.publish(QUERY, 1, token, [])


def test_a_damaged_or_missing_segment_is_never_used(log: DirectoryLog) -> None:
    token = log.take_over()
    (segment,) = written(log, 0, token, (1,))
    log.publish(QUERY, 0, token, [segment])
    assert log.read_segment(segment) == b"0 0 0"
    (log.segments / segment.file).write_bytes(b"0 0 1")
    with pytest.raises(CorruptData, match=segment.file):
        log.read_segment(segment)
    (log.segments / segment.file).unlink()
    with pytest.raises(CorruptData, match="is missing although its batch is published"):
        log.read_segment(segment)


def test_files_go_when_no_channel_needs_them(log: DirectoryLog) -> None:
    token = log.take_over()
    for batch in range(4):
        log.publish(QUERY, batch, token, written(log, batch, token, (1, 1)))
    log.release(0, 3)
    assert log.batches() == [0, 1, 2, 3]
    log.release(1, 2)
    assert log.batches() == [2, 3]
    assert [name[:10] for name in files(log)] == ["0000000002"] * 2 + ["0000000003"] * 2
    assert log.publish(QUERY, 4, token, [])


def test_a_torn_low_water_mark_releases_nothing(log: DirectoryLog) -> None:
    token = log.take_over()
    for batch in range(3):
        log.publish(QUERY, batch, token, [])
    log.release(0, 2)
    (log.directory / "low-water" / "0.json").write_bytes(b"")
    log.release(1, 2)
    assert log.batches() == [0, 1, 2]


def test_another_number_of_channels_is_refused(log: DirectoryLog) -> None:
    with pytest.raises(PipelineError, match="was written with partitions=2, the source says 3"):
        DirectoryLog(log.directory, channels=3).create()
    DirectoryLog(log.directory, channels=2).create()


def test_a_lock_that_is_never_given_up_is_reported(log: DirectoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_directory, "LOCK_WAIT_S", 0.01)
    descriptor = os.open(log.directory / "lock", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="lock has been held"):
            log.take_over()
    finally:
        os.close(descriptor)


def test_two_that_publish_the_same_batch_leave_one_manifest(log: DirectoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is what orders them; without it (a file system that ignores it) the link still lets only one through."""
    token = log.take_over()
    path = log.directory / "manifests" / "0000000000.json"
    before = DirectoryLog._before

    def slow(self: DirectoryLog, batch: int) -> tuple[int, ...]:
        path.write_bytes(b"the other's")
        return before(self, batch)

    monkeypatch.setattr(DirectoryLog, "_before", slow)
    with pytest.raises(Fenced, match="published by another driver at the same time"):
        log.publish(QUERY, 0, token, [])
    assert path.read_bytes() == b"the other's"
    assert list(path.parent.iterdir()) == [path]
