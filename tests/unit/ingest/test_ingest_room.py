"""Published and unread batches are bounded; a batch that waits for room is let in some time, and never fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: nothing can decode segments")

from causal.errors import Fenced, Unavailable
from operators.ingest.bound import await_room, orphaned
from operators.ingest.contract import SEGMENT_BYTES_MIN, Segment
from operators.ingest.ingest_log import DIRECTORY_LOOK_S
from operators.ingest.reader import IngestReader
from tests.spark.conftest import eventually
from tests.unit.ingest.test_ingest_log import written
from tests.unit.ingest.test_ingest_reader import Publisher, drained

MANY = 1 << 30


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path / "ingest", 2)


class Waiting:
    """A commit on a thread of its own."""

    def __init__(self, publisher: Publisher, bytes_max: int, ended: Callable[[], bool] = lambda: False) -> None:
        self.problem: Exception | None = None
        self._asked = publisher, bytes_max, ended
        self._segments = written(publisher.log, publisher.batch, publisher.token, (1, 1), attempt=7)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        publisher, bytes_max, ended = self._asked
        try:
            await_room(publisher.log, publisher.batch, publisher.token, self._segments, bytes_max, ended)
        except (Fenced, Unavailable) as problem:
            self.problem = problem

    def waits(self) -> bool:
        self._thread.join(3 * DIRECTORY_LOOK_S)
        return self._thread.is_alive()

    def advances(self) -> Exception | None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.problem


def segment_bytes(count: int) -> int:
    return count * SEGMENT_BYTES_MIN


def test_a_batch_waits_until_a_checkpoint_covers_enough(
    publisher: Publisher, capfd: pytest.CaptureFixture[str]
) -> None:
    readers = [publisher.reader(channel) for channel in range(2)]
    publisher.publish([[3], [3]])
    publisher.publish([[3], [3]])
    assert publisher.log.room_taken(2)[0] == segment_bytes(4)
    waiting = Waiting(publisher, segment_bytes(4))
    eventually(lambda: publisher.log.backlog() is not None, "a report of the batch that waits")
    assert waiting.waits()
    backlog = publisher.log.backlog()
    assert backlog is not None and backlog.since_ns > 0
    assert (backlog.unread_bytes, backlog.bytes_max, backlog.batch) == (segment_bytes(4), segment_bytes(4), 2)
    assert readers[0].counters()["ingest_unread_bytes"] == segment_bytes(4)
    assert readers[0].counters()["ingest_waiting_s"] >= 0 and readers[1].counters() == {}
    for reader in readers:
        assert len(drained(reader)) == 6
    assert waiting.waits()  # read, but no checkpoint covers it
    readers[0].completed(3)
    readers[1].completed(2)
    assert waiting.waits()  # 3 segments and 2 more
    readers[1].completed(3)
    assert waiting.advances() is None
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2 and "batch 2 waits: 262,144 bytes are published but not yet read" in said[0]
    assert "batch 2 resumes after" in said[1]
    assert readers[0].counters() == {"ingest_unread_bytes": segment_bytes(4), "ingest_waiting_s": 0.0}


def test_one_batch_is_always_let_in_when_nothing_is_unread(publisher: Publisher) -> None:
    """This also holds after a last batch, which stays on disk when it is covered."""
    readers = [publisher.reader(channel) for channel in range(2)]
    for batch in range(3):
        assert Waiting(publisher, 1).advances() is None
        publisher.publish([[2], [2]])
        waiting = Waiting(publisher, 1)
        assert waiting.waits()
        for reader in readers:
            drained(reader, 2 * batch)
            reader.completed(2 * batch + 2)
        assert waiting.advances() is None
        assert publisher.log.batches()[-1] == batch and len(publisher.log.batches()) <= 2


def test_without_checkpoints_what_was_read_is_done_with(publisher: Publisher) -> None:
    readers = [IngestReader(publisher.log, channel, "numbers", checkpoints=False) for channel in range(2)]
    publisher.publish([[2], [2]])
    waiting = Waiting(publisher, 1)
    assert waiting.waits()
    for reader in readers:
        assert len(drained(reader)) == 2
    assert waiting.advances() is None
    assert len(drained(publisher.reader())) == 2  # nothing was removed: a task that dies begins at 0


def test_a_batch_that_is_published_already_waits_for_nothing(publisher: Publisher) -> None:
    publisher.publish([[2], [2]])
    publisher.batch = 0
    assert Waiting(publisher, 1).advances() is None


def test_the_wait_ends_with_a_younger_driver_or_with_the_process_that_asked(publisher: Publisher) -> None:
    publisher.publish([[2], [2]])
    over = threading.Event()
    gone = Waiting(publisher, 1, over.is_set)
    assert gone.waits()
    over.set()
    assert isinstance(gone.advances(), Unavailable)
    fenced = Waiting(publisher, 1)
    assert fenced.waits()
    publisher.log.take_over()
    assert isinstance(fenced.advances(), Fenced)
    assert publisher.log.backlog() is None or not orphaned()()


def test_a_backlog_that_was_torn_by_a_power_failure_is_none(publisher: Publisher) -> None:
    publisher.publish([[2], [2]])
    assert Waiting(publisher, MANY).advances() is None
    assert publisher.log.backlog() is not None
    (path,) = (publisher.directory / "backlog").iterdir()
    for torn in (b"", path.read_bytes()[:20], b"0" * 40):
        path.write_bytes(torn)
        assert publisher.log.backlog() is None


def test_small_segments_count_as_what_a_file_costs(publisher: Publisher) -> None:
    segments = written(publisher.log, 0, publisher.token, (1, 1))
    assert publisher.log.room_taken(0, segments) == (0, segment_bytes(2))
    name = "0000000000-00000-1-9-0.arrow"
    digest = publisher.log.write_segment(name, b"x" * (3 * SEGMENT_BYTES_MIN))
    assert publisher.log.room_taken(0, [Segment(name, 0, 0, 1, digest)]) == (0, segment_bytes(3))
