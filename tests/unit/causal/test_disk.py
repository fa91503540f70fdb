"""The disk as a peer: what was asked is answered in order, a refusal is an answer, nothing outlives `close`."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from causal.effects import ReadSegment, RemoveSegments, SpillSegment, WriteSnapshot
from causal.errors import Unavailable
from causal.events import Event, SegmentFailed, SegmentRead, SegmentWritten, SnapshotWritten
from causal.inflight import Entry
from causal.storage import disk as disk_module
from causal.storage import files
from causal.storage.disk import SNAPSHOT_TRIES_MAX, Disk
from causal.storage.files import read_parts


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    writer = Disk(tmp_path, "count/0", 3, tmp_path / "spill")
    yield writer
    writer.close()


def answered(disk: Disk, *effects: object, count: int | None = None) -> list[Event]:
    for effect in effects:
        disk.ask(effect)  # type: ignore[arg-type]
    events: list[Event] = []
    while len(events) < (len(effects) if count is None else count):
        select.select([disk.wake], [], [])
        events += disk.answers()
    return events


def a_run(*payloads: bytes) -> list[Entry]:
    entries, first = [], 10
    for payload in payloads:
        entries.append(Entry(first, 2, 0, payload, len(payload), 0, 0, 0))
        first += 2
    return entries


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_segment_comes_back_as_it_went(disk: Disk, tmp_path: Path) -> None:
    payloads = [b"x" * 100_000, os.urandom(500), b"y"]
    spill = SpillSegment(4, 7, a_run(*payloads))
    assert answered(disk, spill, ReadSegment(4, 7)) == [
        SegmentWritten(4, 7, 10, 6),
        SegmentRead(4, 7, dict(zip((10, 12, 14), payloads, strict=True))),
    ]
    (segment,) = (tmp_path / "spill").iterdir()
    assert segment.stat().st_size < 3_000
    assert answered(disk, RemoveSegments([7, 8]), spill, count=1) == [SegmentWritten(4, 7, 10, 6)]


def test_a_segment_that_cannot_be_written_is_answered_and_the_next_one_is_written(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr("os.replace", refuse)
        assert answered(disk, SpillSegment(0, 1, a_run(b"abc"))) == [SegmentFailed(0, 1)]
    assert list((tmp_path / "spill").iterdir()) == []
    assert answered(disk, SpillSegment(0, 2, a_run(b"abc"))) == [SegmentWritten(0, 2, 10, 2)]


def test_a_damaged_segment_is_never_used_and_costs_its_process(disk: Disk, tmp_path: Path) -> None:
    answered(disk, SpillSegment(0, 1, a_run(b"abc" * 100)))
    (segment,) = (tmp_path / "spill").iterdir()
    damaged = bytearray(segment.read_bytes())
    damaged[60] ^= 1
    segment.write_bytes(damaged)
    with pytest.raises(Unavailable, match="00000001.seg does not match"):
        answered(disk, ReadSegment(0, 1))


def test_a_snapshot_is_durable_under_its_tasks_name(disk: Disk, tmp_path: Path) -> None:
    (answer,) = answered(disk, WriteSnapshot(12, [b"cut", b"keys"]))
    assert isinstance(answer, SnapshotWritten) and answer.epoch == 12
    name, size, digest = answer.file
    assert name == "checkpoints/count/0/e00000012-i3.snap"
    assert read_parts(tmp_path / name, digest) == [b"cut", b"keys"]
    assert (tmp_path / name).stat().st_size == size == disk.snapshot_bytes


def test_a_snapshot_is_tried_again_and_then_given_up(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Path] = []

    def full(path: Path, *_: object, **__: object) -> tuple[int, str]:
        tries.append(path)
        if len(tries) == 2:  # there is room again
            return files.write_parts(path, [b"state"], False)
        raise Unavailable(f"{path}: cannot be written")

    monkeypatch.setattr(disk_module, "write_parts", full)
    monkeypatch.setattr("threading.Event.wait", lambda self, timeout=None: True)
    (answer,) = answered(disk, WriteSnapshot(1, [b"state"]))
    assert isinstance(answer, SnapshotWritten) and len(tries) == 2
    with pytest.raises(Unavailable, match="e00000002-i3.snap: cannot be written"):
        answered(disk, WriteSnapshot(2, [b"state"]))
    assert len(tries) == 2 + SNAPSHOT_TRIES_MAX


def test_closing_removes_the_segments_and_keeps_the_snapshots(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    disk = Disk(tmp_path, "count/0", 1, tmp_path / "spill")
    answered(disk, SpillSegment(0, 1, a_run(b"abc")), WriteSnapshot(1, [b"state"]))
    disk.close()
    assert not (tmp_path / "spill").exists()
    assert (tmp_path / "checkpoints/count/0/e00000001-i1.snap").exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_nothing_to_say_is_no_answer(disk: Disk) -> None:
    assert disk.answers() == []
