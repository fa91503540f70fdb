"""Stable determinants: holders forget what is reported, logs read back fill holes only, complete records count."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from benchmarks.harness.graphs import chain_of
from causal.effects import AppendStable, BeginStable, ReadStable
from causal.errors import DeterminantsLost, PeerViolation, Unavailable
from causal.ids import TaskIndex
from causal.logs.dissemination import STABLE_BYTES_REPORTED, Holdings, Seen
from causal.logs.log import DeterminantLog, LogDelta
from causal.storage.stable import StableLogs, framed, prefix_of
from causal.task.flushing import AGAIN_NS, FLUSH_EVERY_NS, Flushing
from causal.topology import FULL_DEPTH
from operators.sinks.contract.account import Account

LOG = bytes(range(250)) * 2
NAMES = ("read/0", "sum/0", "out/0")
ROW = chain_of(*NAMES)


def holdings(task: int, depth: int = FULL_DEPTH) -> Holdings:
    return Holdings(ROW, TaskIndex(task), depth, 0, flushing=True)


def mark(task: int, offset: int) -> LogDelta:
    return LogDelta(task, 0, offset, b"")


# -- logs --------------------------------------------------------------------------------------------


def test_a_holder_lets_go_of_what_is_stable_and_still_knows_how_far_the_log_came() -> None:
    log = DeterminantLog(0)
    log.merge(LogDelta(0, 0, 0, LOG[:50]))
    assert log.merge(mark(0, 30)) == 0
    assert (log.extent(0), log.bytes_of(0), log.begins, log.size) == (50, LOG[30:50], {0: 30}, 20)
    assert log.merge(mark(0, 80)) == 30
    assert (log.extent(0), log.bytes_of(0)) == (80, b"")
    with pytest.raises(PeerViolation, match="begins at byte 90, but only 80 bytes are held"):
        log.merge(LogDelta(0, 0, 90, LOG[90:100]))
    assert log.merge(LogDelta(0, 0, 70, LOG[70:100])) == 20
    assert log.whole() == [mark(0, 80), LogDelta(0, 0, 80, LOG[80:100])]
    with pytest.raises(PeerViolation, match="contradicts"):
        log.merge(LogDelta(0, 0, 60, LOG[60:99] + b"\xff"))


def test_what_does_not_stand_is_forgotten_also_where_it_was_stable() -> None:
    log = DeterminantLog(0)
    log.merge(mark(0, 80))
    log.merge(LogDelta(0, 0, 80, LOG[80:100]))
    log.cut({0: 90})
    assert (log.extent(0), log.whole()) == (90, [mark(0, 80), LogDelta(0, 0, 80, LOG[80:90])])
    log.cut({0: 40})
    assert (log.extent(0), log.whole()) == (40, [mark(0, 40)])
    log.cut({})
    assert (log.extent(0), log.whole(), log.begins) == (0, [], {})


def test_an_owner_keeps_its_bytes_and_shares_what_is_not_stable() -> None:
    log = DeterminantLog(0, owner=True)
    log.append(0, LOG[:100])
    log.written(0, 60)
    assert log.bytes_of(0) == LOG[:100]
    assert log.deltas({}) == [mark(0, 60), LogDelta(0, 0, 60, LOG[60:100])]
    assert log.deltas({0: 70}) == [LogDelta(0, 0, 70, LOG[70:100])]
    assert log.deltas({0: 55}) == [LogDelta(0, 0, 55, LOG[55:100])], "a mark would cost more than it saves"
    assert log.unwritten() == [LogDelta(0, 0, 60, LOG[60:100])]


# -- messages to neighbours and stores ----------------------------------------------------------------


def test_what_is_stable_is_not_shared_and_is_passed_on() -> None:
    first, second, third = (holdings(task) for task in range(3))
    first.own.append(0, LOG[:400])
    to_second, to_third, store = Seen(), Seen(), Seen()
    second.merge(first.lacking(to_second)[0])
    first.own.written(0, STABLE_BYTES_REPORTED)
    deltas, _ = first.lacking(to_second)
    assert deltas == [mark(0, STABLE_BYTES_REPORTED)]
    assert first.lacking(to_second) == ([], [])
    second.merge(deltas)
    assert second.logs[0].size == 400 - STABLE_BYTES_REPORTED
    third.merge(second.lacking(to_third)[0])
    assert third.logs[0].whole() == [mark(0, 256), LogDelta(0, 0, 256, LOG[256:400])]
    account = Account("out/0", "run", 1)
    fresh = account.merge(third.lacking(store, store=True)[0])
    assert fresh == (mark(0, 256), LogDelta(0, 0, 256, LOG[256:400]))
    again = Account("out/0", "run", 1)
    again.merge(fresh)
    assert again.store_state().logs == account.store_state().logs == fresh


def test_nobody_says_stable_in_a_job_that_writes_nothing() -> None:
    here = Holdings(ROW, TaskIndex(1), FULL_DEPTH, 0)
    with pytest.raises(PeerViolation, match="as stable, but this job stores no logs"):
        here.merge([mark(0, 10)])


# -- the log read back, and when it is written ----------------------------------------------------------------


def collecting(depth: int = FULL_DEPTH) -> tuple[Holdings, Flushing]:
    mine = holdings(0, depth)
    return mine, Flushing("read/0", mine)


def test_a_file_fills_holes_and_says_no_more_than_others() -> None:
    mine, flushing = collecting()
    mine.merge([mark(0, 60), LogDelta(0, 0, 60, LOG[60:80])])
    assert flushing.request_read() == [ReadStable()] and flushing.request_read() == []
    flushing.read([LogDelta(0, 0, 0, LOG[:150])])
    assert (mine.own.bytes_of(0), mine.own.begins, flushing.request_read()) == (LOG[:80], {}, [])
    assert flushing.begin() == [BeginStable([LogDelta(0, 0, 0, LOG[:80])])] and not flushing.begun


def test_below_full_depth_a_file_reaches_as_far_as_others_depend() -> None:
    mine, flushing = collecting(depth=1)
    mine.depend([(0, 0, 90)])
    assert flushing.request_read() == [ReadStable()]
    flushing.read([LogDelta(0, 0, 0, LOG[:150])])
    assert (mine.own.bytes_of(0), mine.missing()) == (LOG[:90], [])
    mine.depend([(0, 0, 170)])
    assert flushing.request_read() == [ReadStable()]
    flushing.read([LogDelta(0, 0, 0, LOG[:150])])
    assert (mine.own.extent(0), mine.missing(), flushing.request_read()) == (150, [(0, 0, 150)], []), "the rest is lost"


def test_a_file_that_is_gone_is_lost_or_stops_the_job() -> None:
    mine, flushing = collecting(depth=1)
    mine.merge([mark(0, 60), LogDelta(0, 0, 60, LOG[60:80])])
    mine.depend([(0, 0, 80)])
    flushing.request_read()
    flushing.read([LogDelta(0, 0, 0, LOG[:20])])
    assert mine.missing() == [(0, 0, 20)]
    mine, flushing = collecting()
    mine.merge([mark(0, 60)])
    flushing.request_read()
    with pytest.raises(
        DeterminantsLost, match="60 bytes of its determinants were stable, but only 20 can be read under determinants/"
    ):
        flushing.read([LogDelta(0, 0, 0, LOG[:20])])
    mine, flushing = collecting()
    mine.merge([mark(0, 60), LogDelta(0, 0, 60, LOG[60:80])])
    flushing.request_read()
    with pytest.raises(
        DeterminantsLost, match="the bytes on stable storage contradict the bytes that other tasks hold"
    ):
        flushing.read([LogDelta(0, 0, 0, LOG[:70] + b"\xff" * 9)])


def test_one_write_at_a_time_of_all_that_came_since() -> None:
    mine, flushing = collecting()
    flushing.begin()
    mine.own.append(0, LOG[:10])
    assert flushing.due(0) == [] and flushing.next_deadline_ns(0) is None
    flushing.written([])
    assert flushing.due(1) == [AppendStable([LogDelta(0, 0, 0, LOG[:10])])]
    mine.own.append(0, LOG[10:20])
    assert flushing.due(1 + FLUSH_EVERY_NS) == []
    flushing.written([(0, 0, 10)])
    assert flushing.unwritten_bytes == 10
    assert flushing.due(2) == [] and flushing.next_deadline_ns(2) == 1 + FLUSH_EVERY_NS
    assert flushing.due(1 + FLUSH_EVERY_NS) == [AppendStable([LogDelta(0, 0, 10, LOG[10:20])])]
    flushing.failed(9)
    assert flushing.due(10) == [] and flushing.next_deadline_ns(10) == 9 + AGAIN_NS
    assert flushing.due(9 + AGAIN_NS) == [AppendStable([LogDelta(0, 0, 10, LOG[10:20])])]
    flushing.written([(0, 0, 20)])
    assert flushing.unwritten_bytes == 0 and flushing.due(4 * AGAIN_NS) == []


# -- files ---------------------------------------------------------------------------------------------


def test_records_are_believed_as_far_as_they_are_whole() -> None:
    stored = framed(LogDelta(0, 0, 0, LOG[:50])) + framed(LogDelta(0, 0, 50, LOG[50:80]))
    assert prefix_of(stored) == LOG[:80]
    for cut in range(len(stored)):
        assert prefix_of(stored[:cut]) in (b"", LOG[:50])
    for place in range(len(stored)):
        damaged = bytearray(stored)
        damaged[place] ^= 0x10
        assert prefix_of(bytes(damaged)) in (b"", LOG[:50])
    assert prefix_of(stored + framed(LogDelta(0, 0, 90, LOG[90:95])) + bytes(100)) == LOG[:80]


def test_the_youngest_that_has_begun_counts(tmp_path: Path) -> None:
    one, two, three = (StableLogs(tmp_path, "sum/0", incarnation, sync=True) for incarnation in (1, 2, 3))
    assert two.read() == []
    assert one.begin([]) == []
    assert one.append([LogDelta(4, 0, 0, LOG[:50]), LogDelta(4, 1, 0, LOG[:9])]) == [(4, 0, 50), (4, 1, 9)]
    assert two.read() == [LogDelta(-1, 0, 0, LOG[:50]), LogDelta(-1, 1, 0, LOG[:9])]
    assert two.begin([LogDelta(4, 0, 0, LOG[:30])]) == [(4, 0, 30)]
    one.append([LogDelta(4, 0, 50, LOG[50:60])])  # a zombie; its directory is gone
    assert one.read() == [] and three.read() == [LogDelta(-1, 0, 0, LOG[:30])]
    with pytest.raises(Unavailable):
        one.append([LogDelta(4, 2, 0, LOG[:5])])
    two.append([LogDelta(4, 0, 30, LOG[30:40]), LogDelta(4, 1, 0, LOG[:7])])
    two.truncate(1)
    assert three.read() == [LogDelta(-1, 1, 0, LOG[:7])]
    for each in (one, two, three):
        each.close()


def test_what_a_failed_write_left_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = StableLogs(tmp_path, "sum/0", 1, sync=False)
    logs.begin([LogDelta(4, 0, 0, LOG[:10])])
    write, calls = os.pwrite, iter((7, -1))

    def full(descriptor: int, data: bytes, place: int) -> int:
        room = next(calls)
        if room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, bytes(data)[:room], place)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(Unavailable, match="No space left"):
        logs.append([LogDelta(4, 0, 10, LOG[10:30])])
    monkeypatch.setattr(os, "pwrite", write)
    assert logs.read() == [LogDelta(-1, 0, 0, LOG[:10])]
    logs.append([LogDelta(4, 0, 10, LOG[10:20])])
    assert logs.read() == [LogDelta(-1, 0, 0, LOG[:20])]
    logs.close()


def test_files_that_cannot_be_begun_leave_the_older_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older, younger = StableLogs(tmp_path, "sum/0", 1, sync=False), StableLogs(tmp_path, "sum/0", 2, sync=False)
    older.begin([LogDelta(4, 0, 0, LOG[:10])])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(Unavailable, match="free space or fix the disk"):
        younger.begin([LogDelta(4, 0, 0, LOG[:10])])
    assert younger.read() == [LogDelta(-1, 0, 0, LOG[:10])]
    older.close()
