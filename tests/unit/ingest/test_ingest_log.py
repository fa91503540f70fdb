"""Batches are published once, by the youngest driver of one query, and never change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from causal.errors import CorruptData, Fenced, PipelineError, Unavailable
from causal.storage import directory as storage_directory
from causal.storage.directory import LOCK, Directory
from causal.storage.lock import locked_once
from causal.storage.objects import Objects
from operators.ingest.contract import SEGMENT_BYTES_MIN, Manifest, Segment, segment_name
from operators.ingest.earlier_log import adopt
from operators.ingest.ingest_log import IngestLog
from operators.ingest.place import IngestPlace
from tests.properties.objects import Memory
from tests.unit.ingest.earlier import FOLDER, as_earlier_version

QUERY = "6ba7b810"


@pytest.fixture(params=["directory", "memory", "store"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    """A directory of one machine, a place that excludes no process, and a store's client."""
    if request.param == "directory":
        return Directory(tmp_path)
    if request.param == "memory":
        return Memory()
    pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")
    from causal.storage.shared import Depot

    return Depot(f"file://{tmp_path}/store", "job/run")


@pytest.fixture
def log(objects: Objects) -> IngestLog:
    log = IngestLog(objects, FOLDER, channels=2)
    log.create()
    return log


def changed(objects: Objects, name: str, data: bytes) -> None:
    """Replace an object, which nothing in the product does."""
    objects.remove([f"{FOLDER}/{name}"])
    assert objects.create(f"{FOLDER}/{name}", data)


def written(log: IngestLog, batch: int, token: int, rows: tuple[int, ...], attempt: int = 0) -> list[Segment]:
    """Return one segment for each Spark partition."""
    segments = []
    for partition, count in enumerate(rows):
        name = segment_name(batch, partition, token, attempt, 0)
        digest = log.write_segment(name, f"{batch} {partition} {attempt}".encode())
        segments.append(Segment(name, partition, 0, count, digest))
    return segments


def files(objects: Objects) -> list[str]:
    return sorted(name.rpartition("/")[2] for name in objects.names(f"{FOLDER}/segments"))


def test_counts_per_channel_go_on_from_batch_to_batch(log: IngestLog) -> None:
    token = log.take_over()
    for batch, rows in enumerate([(3, 5, 7), (), (1,)]):
        assert log.publish(QUERY, batch, token, written(log, batch, token, rows))
    manifests = [log.manifest(batch) for batch in log.batches()]
    assert [manifest.before for manifest in manifests if manifest] == [(0, 0), (10, 5), (10, 5)]
    assert manifests[2] is not None and manifests[2].after() == (11, 5)
    assert manifests[0] is not None
    assert [segment.partition for segment in manifests[0].of_channel(0)] == [0, 2]


def test_a_savepoint_keeps_its_batches_and_a_return_makes_them_unread(log: IngestLog, objects: Objects) -> None:
    token = log.take_over()
    for batch in range(4):
        log.publish(QUERY, batch, token, written(log, batch, token, (2, 1)))
    log.release(0, 1)
    log.keep("7-abc", [5, 1])
    assert log.kept() == {"7-abc": 1}, "the second channel needs batch 1, the first one batch 2"
    for channel in range(2):
        log.release(channel, 3)
    assert log.batches() == [1, 2, 3] and log.kept_rows(0) == (2, 8)
    assert log.room_taken(4)[0] == log.room_taken(4, written(log, 4, token, (1, 1)))[1] == 2 * SEGMENT_BYTES_MIN
    lowest = IngestLog(objects, FOLDER, 2).first()
    assert lowest is not None and lowest.batch == 3, "readers begin after what only savepoints need"
    for _ in range(2):
        log.return_to([5, 1])
    assert log.room_taken(4)[0] == 5 * SEGMENT_BYTES_MIN
    lowest = IngestLog(objects, FOLDER, 2).first()
    assert lowest is not None and lowest.batch == 1
    assert log.exceeding(3, 6 * SEGMENT_BYTES_MIN) == [] and log.exceeding(3, 5 * SEGMENT_BYTES_MIN) == ["7-abc"]
    log.forget(["7-abc"])
    for channel in range(2):
        log.release(channel, 3)
    assert log.kept() == {} and log.batches() == [3]


def test_a_batch_published_again_keeps_the_first_and_removes_the_second(log: IngestLog, objects: Objects) -> None:
    token = log.take_over()
    first = written(log, 0, token, (2, 2), attempt=0)
    assert log.publish(QUERY, 0, token, first, offsets="same")
    again = written(log, 0, token, (2, 2), attempt=7)
    assert not log.publish(QUERY, 0, token, again, offsets="same")
    manifest = log.manifest(0)
    assert manifest is not None and list(manifest.segments) == first
    assert files(objects) == sorted(segment.file for segment in first)


def test_a_driver_that_was_replaced_cannot_publish_or_end(log: IngestLog) -> None:
    old = log.take_over()
    segments = written(log, 0, old, (1,))
    young = log.take_over()
    with pytest.raises(Fenced, match=f"driver {old} was replaced by driver {young}"):
        log.publish(QUERY, 0, old, segments)
    with pytest.raises(Fenced):
        log.end(old)
    assert log.batches() == [] and log.ended() is None
    assert log.publish(QUERY, 0, young, written(log, 0, young, (1,)))


def test_a_later_driver_removes_what_is_unpublished_where_the_place_excludes_the_earlier(
    log: IngestLog, objects: Objects
) -> None:
    token = log.take_over()
    kept = written(log, 0, token, (1, 1))
    log.publish(QUERY, 0, token, kept)
    others = written(log, 1, token, (4,))
    if isinstance(objects, Directory):
        unfinished = objects.path / FOLDER / "segments" / ".0000000001-00001-1-0-0.arrow.17"
        unfinished.write_bytes(b"half")
        spark = objects.path / FOLDER / "spark-checkpoint" / ".0.crc"
        spark.parent.mkdir()
        spark.write_bytes(b"Spark's")
    log.take_over()
    with objects.exclusive(FOLDER) as excluded:
        left = [] if excluded else others
    assert files(objects) == sorted(segment.file for segment in [*kept, *left])
    if isinstance(objects, Directory):
        assert not unfinished.exists() and spark.exists()


def test_discarding_leaves_segments_that_are_published_or_may_be(log: IngestLog, objects: Objects) -> None:
    token = log.take_over()
    segments = written(log, 0, token, (1,))
    log.publish(QUERY, 0, token, segments)
    lost = written(log, 1, token, (1,))
    log.discard([*segments, *lost])
    assert files(objects) == sorted(segment.file for segment in [*segments, *lost]), "batch 1 is not decided"
    log.publish(QUERY, 1, token, written(log, 1, token, (2,), attempt=9))
    log.discard([*segments, *lost])
    assert [name[:22] for name in files(objects)] == [segments[0].file[:22], "0000000001-00000-1-9-0"]


def test_another_query_is_refused(log: IngestLog) -> None:
    token = log.take_over()
    log.check_query("")
    log.publish(QUERY, 0, token, [])
    log.check_query(QUERY)
    for other in ("", "another"):
        with pytest.raises(PipelineError, match=f"has the batches of query {QUERY}"):
            log.check_query(other)
    with pytest.raises(PipelineError, match="Spark checkpoint was removed or replaced"):
        log.publish("another", 1, token, [])


def test_other_input_for_a_published_batch_is_refused(log: IngestLog) -> None:
    token = log.take_over()
    log.publish(QUERY, 0, token, [], offsets="one")
    with pytest.raises(PipelineError, match="checkpoint was rolled back"):
        log.publish(QUERY, 0, token, [], offsets="two")


def test_a_batch_out_of_turn_is_refused(log: IngestLog) -> None:
    token = log.take_over()
    with pytest.raises(PipelineError, match="commits batch 3, but the last batch is none"):
        log.publish(QUERY, 3, token, [])
    log.publish(QUERY, 0, token, [])
    with pytest.raises(PipelineError, match="commits batch 2, but the last batch is 0"):
        log.publish(QUERY, 2, token, [])


def test_nothing_follows_the_end(log: IngestLog) -> None:
    token = log.take_over()
    log.publish(QUERY, 0, token, [])
    log.end(token)
    assert log.ended() == 1
    with pytest.raises(Fenced):
        log.publish(QUERY, 1, token, [])
    with pytest.raises(Fenced, match="has ended the query"):
        log.publish(QUERY, 2, token, [])
    assert not log.publish(QUERY, 0, token, [])
    log.end(token)


def test_a_damaged_manifest_is_never_used(log: IngestLog, objects: Objects) -> None:
    token = log.take_over()
    log.publish(QUERY, 0, token, written(log, 0, token, (1,)))
    data = objects.read(f"{FOLDER}/manifests/0000000000")
    changed(objects, "manifests/0000000000", data.replace(b'"rows":1', b'"rows":2'))
    with pytest.raises(CorruptData, match="0000000000 does not match its digest"):
        log.manifest(0)
    with pytest.raises(CorruptData):
        log.publish(QUERY, 1, token, [])


def test_a_damaged_or_missing_segment_is_never_used(log: IngestLog, objects: Objects) -> None:
    token = log.take_over()
    (segment,) = written(log, 0, token, (1,))
    log.publish(QUERY, 0, token, [segment])
    assert log.supply([segment]) == b"0 0 0"
    changed(objects, f"segments/{segment.file}", b"0 0 1")
    with pytest.raises(CorruptData, match=segment.file):
        log.supply([segment])
    objects.remove([f"{FOLDER}/segments/{segment.file}"])
    with pytest.raises(CorruptData, match="is missing although its batch is published"):
        log.supply([segment])


def test_a_low_water_mark_that_is_lost_releases_nothing(log: IngestLog, objects: Objects) -> None:
    token = log.take_over()
    for batch in range(3):
        log.publish(QUERY, batch, token, [])
    log.release(0, 2)
    objects.remove(objects.names(f"{FOLDER}/low-water"))
    log.release(1, 2)
    assert log.batches() == [0, 1, 2]


def test_another_number_of_channels_is_refused(log: IngestLog, objects: Objects) -> None:
    with pytest.raises(PipelineError, match="was written with partitions=2, but the source has 3"):
        IngestLog(objects, FOLDER, channels=3).create()
    IngestLog(objects, FOLDER, channels=2).create()


def test_a_lock_that_is_never_released_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_directory, "LOCK_WAIT_MS", 10)
    log = IngestLog(Directory(tmp_path), FOLDER, channels=2)
    log.create()
    with (
        locked_once(tmp_path / FOLDER / LOCK, 1, tmp_path),
        pytest.raises(Unavailable, match="locked by another process"),
    ):
        log.take_over()


def test_two_that_publish_the_same_batch_leave_one_manifest(
    log: IngestLog, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first creation counts, also where the place excludes no process, or its file system ignores locks."""
    token, before = log.take_over(), IngestLog._before
    other = Manifest(QUERY, 0, token + 1, "", 1, (0, 0), ()).packed()

    def late(self: IngestLog, batch: int, query: str) -> tuple[int, ...]:
        objects.create(f"{FOLDER}/manifests/0000000000", other)
        return before(self, batch, query)

    monkeypatch.setattr(IngestLog, "_before", late)
    with pytest.raises(Fenced, match="another driver has published batch 0"):
        log.publish(QUERY, 0, token, [])
    assert objects.read(f"{FOLDER}/manifests/0000000000") == other
    assert objects.names(f"{FOLDER}/manifests") == [f"{FOLDER}/manifests/0000000000"]


def test_a_driver_repeats_the_batch_after_which_it_has_begun(log: IngestLog, objects: Objects) -> None:
    """Spark on one machine was killed after the log had its batch and before its own disk had it."""
    earlier = log.take_over()
    log.publish(QUERY, 0, earlier, written(log, 0, earlier, (1,)), offsets="same")
    token = log.take_over()
    later = IngestLog(objects, FOLDER, 2, resumed=max(log.batches()))
    assert not later.publish(QUERY, 0, token, written(later, 0, token, (1,)), offsets="same")
    with pytest.raises(PipelineError, match="checkpoint was rolled back"):
        later.publish(QUERY, 0, token, [], offsets="another")
    assert later.publish(QUERY, 1, token, written(later, 1, token, (1,)), offsets="next")
    with pytest.raises(Fenced):
        log.publish(QUERY, 1, earlier, [], offsets="next")


@pytest.mark.parametrize("ended", [False, True])
def test_a_log_of_an_earlier_version_continues(tmp_path: Path, ended: bool) -> None:
    log = IngestLog(Directory(tmp_path), FOLDER, channels=2)
    log.create()
    token = log.take_over()
    for batch in range(3):
        log.publish(QUERY, batch, token, written(log, batch, token, (2, 1)))
    half = written(log, 3, token, (1, 1))
    as_earlier_version(tmp_path, token, ended)
    assert log.batches() == []
    lowest = IngestPlace(tmp_path, FOLDER.rpartition("/")[2], 2).open_to_read(0).first()
    assert lowest is not None and lowest.batch == 0, "the reader of a resumed job opens it first"
    adopt(tmp_path / FOLDER)
    log.create()
    assert log.ended() == (3 if ended else None)
    assert log.batches() == [0, 1, 2, 3][: 3 + ended] and log.take_over() == token + 1
    manifest = log.manifest(2)
    assert manifest is not None and manifest.before == (4, 2) and manifest.after() == (6, 3)
    assert not set(files(Directory(tmp_path))) & {segment.file for segment in half}
    if not ended:
        assert log.publish(QUERY, 3, token + 1, written(log, 3, token + 1, (1,)))
    assert sorted(os.listdir(tmp_path / FOLDER)) == [LOCK, "log.json", "low-water", "manifests", "segments", "tokens"]
    assert sorted(path.name for path in (tmp_path / FOLDER / "manifests").iterdir()) == [f"{n:010d}" for n in range(4)]


@pytest.mark.parametrize("lost", ["log.json", "manifests/0000000000.json"])
def test_the_end_of_an_earlier_version_is_not_guessed(tmp_path: Path, lost: str) -> None:
    log = IngestLog(Directory(tmp_path), FOLDER, channels=2)
    log.create()
    token = log.take_over()
    log.publish(QUERY, 0, token, written(log, 0, token, (2, 1)))
    as_earlier_version(tmp_path, token, ended=True)
    (tmp_path / FOLDER / lost).unlink()
    with pytest.raises(CorruptData, match=f"{lost.removesuffix('.json')}.* is missing although the query has ended"):
        adopt(tmp_path / FOLDER)


def test_a_log_of_an_earlier_version_without_its_token_is_refused(tmp_path: Path) -> None:
    log = IngestLog(Directory(tmp_path), FOLDER, channels=2)
    log.create()
    token = log.take_over()
    log.publish(QUERY, 0, token, [])
    as_earlier_version(tmp_path, token, ended=False)
    fence = tmp_path / FOLDER / "fence.json"
    intact = fence.read_bytes()
    fence.write_bytes(intact[:-3])
    with pytest.raises(CorruptData, match="fence.json does not match its digest"):
        adopt(tmp_path / FOLDER)
    fence.unlink()
    with pytest.raises(CorruptData, match="fence.json is missing although batches exist"):
        adopt(tmp_path / FOLDER)
