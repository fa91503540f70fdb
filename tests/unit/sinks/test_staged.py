"""Rows that wait for a checkpoint, in front of a real store: crashes anywhere, zombies, torn and damaged files, bounds.

Each test runs with the journal in a file, as on one machine, and with the journal in objects, as in a shared store.
What a user sees is read from the store's own file.  Crashes are forked processes that end without warning at the point
in question.
"""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from causal.errors import CorruptData, Fenced, InvariantViolation, PipelineError, Unavailable
from causal.ports import Bundle, SinkStore, StoreState
from causal.records.values import encode
from causal.storage.directory import Directory
from causal.storage.framing import framed
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sinks.staging import staged_store
from operators.sinks.staging.staged_place import staged_in_directory, staged_in_store
from operators.sinks.staging.staged_store import StagedStore
from tests.members import members
from tests.unit.sinks.deaths import armed, in_a_child

TASK, RUN, BIG = "out/0", "run-1", 1 << 30
CALLS_MAX = 300
"""More system calls than a process makes here."""
SOME, ALL = 4, 1
DEATHS = [("directory", False, True, SOME), ("directory", True, False, SOME)]
DEATHS += [
    (*place, half, ALL)
    for place in (("directory", False), ("directory", True), ("store", False))
    for half in (False, True)
]
"""The place, whether an earlier version has staged the rows, whether a write is cut in half, and the step of calls."""
T = TypeVar("T")


class Watched:
    """A store that calls `on(call, "before" | "after")` around each of its methods."""

    def __init__(self, inner: SinkStore, on: Callable[[str, str], None] = lambda call, when: None) -> None:
        self.inner, self.on = inner, on
        self.bundles: list[Bundle] = []

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        return self.inner.open(task, run, incarnation)

    def last_bundle(self) -> StoreState:
        return self.inner.last_bundle()

    def write(self, bundle: Bundle) -> None:
        self.on("write", "before")
        self.inner.write(bundle)
        self.bundles.append(bundle)
        self.on("write", "after")

    def truncate(self, epoch: int) -> None:
        self.on("truncate", "before")
        self.inner.truncate(epoch)
        self.on("truncate", "after")

    def close(self) -> None:
        self.inner.close()


class Stage:
    """A sink in a directory, and processes that come and go in front of it."""

    def __init__(
        self, directory: Path, bytes_max: int = BIG, durability: str = "process", place: str = "directory"
    ) -> None:
        self.sink = JsonLinesSink(directory / "rows")
        self.directory, self.place = directory, place
        self.folder = directory / "staged" / (TASK if place == "directory" else "out-0")
        self.bytes_max, self.durability = bytes_max, durability
        self.watched = Watched(self.sink.open_store(TASK, directory))

    def store(self, on: Callable[[str, str], None] = lambda call, when: None) -> StagedStore:
        """Return the store as a new process has it."""
        self.watched = Watched(self.sink.open_store(TASK, self.directory), on)
        if self.place == "store":
            return staged_in_store(self.watched, TASK, self.bytes_max, "store", lambda: Directory(self.directory))
        return staged_in_directory(self.watched, TASK, self.folder, self.bytes_max, self.durability)

    def opened(self, incarnation: int, restored: int = 0) -> StagedStore:
        store = self.store()
        store.open(TASK, RUN, incarnation)
        commit(store, restored)
        store.discard(restored)
        return store

    def bundle(self, first: int, count: int, epoch: int, incarnation: int, what: str = "row") -> Bundle:
        rows = self.sink.encode([{"n": first + i, "what": what} for i in range(count)])
        return Bundle(first, count, rows, first + count, epoch, incarnation, ())

    @property
    def seen(self) -> list[Any]:
        path = self.sink.path_of(TASK)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def expect(self, count: int, what: str = "row") -> None:
        assert self.seen == [{"n": n, "what": what} for n in range(count)]

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "rows").iterdir())

    def path(self, number: int) -> Path:
        """Return the path of an object of rows."""
        return self.folder / "rows" / self.files()[number]


def commit(store: StagedStore, epoch: int) -> int:
    steps = 0
    while store.commit(epoch):
        steps += 1
    return steps


def fill(stage: Stage, store: StagedStore, incarnation: int, epochs: range, first: int = 0) -> int:
    """Twelve rows per epoch, in bundles of three."""
    for epoch in epochs:
        for _ in range(4):
            store.write(stage.bundle(first, 3, epoch, incarnation))
            first += 3
        store.stage(epoch + 1)
    return first


@pytest.fixture(params=["directory", "store"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(tmp_path, place=request.param)


def test_rows_are_seen_when_their_epoch_is_committed_and_no_earlier(stage: Stage) -> None:
    store = stage.opened(1)
    fill(stage, store, 1, range(3))
    stage.expect(0)
    assert commit(store, 1) == 1
    stage.expect(12)
    assert commit(store, 1) == 0, "a second commit of the same epoch finds nothing"
    assert commit(store, 3) == 2, "the rows of an epoch are one bundle"
    stage.expect(36)
    assert [bundle.count for bundle in stage.watched.bundles] == [12, 12, 12]
    assert stage.files() == []


def test_a_store_tells_how_many_rows_wait_and_what_room_they_take(stage: Stage) -> None:
    store = stage.opened(1)
    assert store.staged() == (0, 0)
    fill(stage, store, 1, range(2))
    sizes = [len(stage.bundle(first, 12, 0, 1).rows) for first in (0, 12)]
    assert store.staged() == (24, sum(sizes))
    commit(store, 1)
    assert store.staged() == (12, sizes[1])
    store.close()
    store = stage.store()
    store.open(TASK, RUN, 2)
    assert store.staged() == (12, sizes[1]), "the process that opens it next knows it, too"
    store.discard(1)
    assert store.staged() == (0, 0)


def test_a_commit_takes_no_more_than_its_bytes_in_one_step(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_store, "COMMIT_BYTES", 50)
    store = stage.opened(1)
    fill(stage, store, 1, range(1))
    assert commit(store, 1) == 4
    stage.expect(12)


def test_a_journal_is_renewed_when_it_has_many_records(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_store, "RECORDS_MAX", 3)
    store, first, sizes = stage.opened(1), 0, []
    for epoch in range(20):
        first = fill(stage, store, 1, range(epoch, epoch + 1), first)
        commit(store, epoch + 1)
        sizes.append(sum(path.stat().st_size for path in stage.folder.rglob("*") if path.is_file()))
    stage.expect(240)
    assert max(sizes[10:]) <= max(sizes[:10]) + 50, "it does not grow without bound"
    assert stage.opened(2, restored=20).last_bundle().next == 240


def test_who_is_restored_makes_visible_what_is_covered_and_forgets_the_rest(stage: Stage) -> None:
    fill(stage, stage.opened(1), 1, range(3))
    store = stage.store()
    assert store.open(TASK, RUN, 2).next == 36
    assert commit(store, 2) == 2
    state = store.discard(2)
    assert (state.next, state.digest) == (24, 24)
    stage.expect(24)
    store.write(stage.bundle(24, 5, 2, 2, "other"))
    store.stage(3)
    commit(store, 3)
    assert [row["what"] for row in stage.seen[24:]] == ["other"] * 5


def lived(stage: Stage, incarnation: int, prepared: Callable[[], object] = lambda: None) -> None:
    """Make two epochs visible and forget a third one; the first process has staged them before it is `prepared`."""
    store = stage.store()
    if incarnation == 1:
        store = stage.opened(1)
        fill(stage, store, 1, range(3))
    prepared()
    if incarnation > 1:
        store.open(TASK, RUN, incarnation)
    for _ in range(2):
        commit(store, 2)
    store.discard(2)


@pytest.mark.parametrize(("place", "earlier", "half", "step"), members(DEATHS, *DEATHS[:2]))
def test_a_death_at_any_system_call_loses_and_doubles_nothing(
    tmp_path: Path, place: str, earlier: bool, half: bool, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes in a row die there; `properties/test_staged_objects.py` draws more lives."""
    monkeypatch.setattr(staged_store, "COMMIT_BYTES", 50)
    for countdown in range(1, CALLS_MAX, step):
        stage = Stage(tmp_path / str(countdown), place=place)
        stage.directory.mkdir()
        if earlier:
            leave_earlier(stage, range(3))

        def life(incarnation: int, stage: Stage = stage, countdown: int = countdown) -> None:
            lived(stage, incarnation, lambda: armed(countdown, half))

        statuses = [in_a_child(partial(life, incarnation)) for incarnation in (1 + earlier, 2 + earlier)]
        assert set(statuses) <= {0, -signal.SIGKILL}
        lived(stage, 4)
        stage.opened(5, restored=2).close()
        stage.expect(24)
        assert not earlier_files(stage) and not stage.files()
        if set(statuses) == {0}:
            assert countdown > 10, "they must have died at every call before"
            return
    raise AssertionError("they never came to their end")


def test_a_zombie_neither_stages_nor_commits_nor_removes(stage: Stage) -> None:
    zombie = stage.opened(1)
    fill(stage, zombie, 1, range(2))
    young = stage.store()
    young.open(TASK, RUN, 2)
    zombie.write(stage.bundle(24, 3, 2, 1))
    acts: list[Callable[[], object]] = [
        lambda: zombie.stage(3),
        lambda: zombie.commit(2),
        lambda: zombie.discard(0),
        lambda: zombie.last_bundle(),
    ]
    for act in acts:
        with pytest.raises(Fenced):
            act()
    stage.expect(0)
    commit(young, 1)
    assert young.discard(1).next == 12
    stage.expect(12)
    with pytest.raises(Fenced):
        stage.store().open(TASK, RUN, 1)


def test_a_zombie_in_the_middle_of_its_commit_is_refused_by_the_store_behind(stage: Stage) -> None:
    zombie = stage.opened(1)
    fill(stage, zombie, 1, range(1))
    inner = stage.watched

    def fenced(call: str, when: str) -> None:
        if (call, when) == ("write", "before"):
            stage.opened(2, restored=1).close()

    inner.on = fenced
    with pytest.raises(Fenced):
        zombie.commit(1)
    stage.expect(12)


def test_a_bundle_whose_acknowledgement_was_lost_is_taken_once(stage: Stage) -> None:
    store = stage.opened(1)
    for _ in range(2):
        store.write(stage.bundle(0, 3, 0, 1))
    with pytest.raises(InvariantViolation):
        store.write(stage.bundle(0, 3, 0, 1, "other"))
    store.stage(1)
    commit(store, 1)
    stage.expect(3)


def test_a_store_that_is_away_in_a_commit_is_tried_again_with_the_same_bundle(stage: Stage) -> None:
    store = stage.opened(1)
    fill(stage, store, 1, range(1))
    trouble = [("write", "before"), ("write", "after"), ("truncate", "before")]

    def away(call: str, when: str) -> None:
        if trouble and trouble[0] == (call, when):
            del trouble[0]
            raise Unavailable("the store is unavailable")

    stage.watched.on = away
    for _ in range(3):
        with pytest.raises(Unavailable):
            commit(store, 1)
    commit(store, 1)
    stage.expect(12)
    assert not trouble and stage.files() == []


def test_an_object_that_was_cut_or_damaged_is_refused_with_its_name(stage: Stage) -> None:
    fill(stage, stage.opened(1), 1, range(1))
    stored = stage.path(0).read_bytes()
    for wrong in (stored[:-5], stored[:30] + b"?" + stored[31:], b""):
        stage.path(0).write_bytes(wrong)
        store = stage.store()
        store.open(TASK, RUN, 2)
        with pytest.raises(CorruptData, match=f"{stage.files()[0]}.*restore"):
            commit(store, 1)
        stage.expect(0)
    stage.path(0).unlink()
    with pytest.raises(CorruptData, match="is missing; restore"):
        commit(store, 1)


def test_a_torn_tail_of_the_journal_is_cut_off_and_written_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    fill(stage, stage.opened(1), 1, range(2))
    os.truncate(stage.folder / "owner", (stage.folder / "owner").stat().st_size - 5)
    store = stage.store()
    assert store.open(TASK, RUN, 2).next == 12
    assert len(stage.files()) == 1, "an object that no record names is removed"
    fill(stage, store, 2, range(1, 2), 12)
    commit(store, 2)
    stage.expect(24)


@pytest.mark.parametrize("name", ["link", "write", "replace"])
@pytest.mark.parametrize("done", [False, True])
def test_a_disk_that_fails_anywhere_is_waited_for(
    stage: Stage, name: str, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stage.opened(1)
    plain, failed, calls = getattr(os, name), 0, 0

    def failing(*args: Any) -> Any:
        nonlocal calls, failed
        calls += 1
        if calls % 3 == 0:
            failed += 1
            if done:
                plain(*args)
            raise OSError(errno.ENOSPC, "No space left on device")
        return plain(*args)

    monkeypatch.setattr(os, name, failing)
    first = 0
    for epoch in range(6):
        for _ in range(2):
            insist(partial(store.write, stage.bundle(first, 3, epoch, 1)))
            first += 3
        insist(partial(store.stage, epoch + 1))
        while insist(partial(store.commit, epoch + 1)):
            continue
    stage.expect(36)
    assert failed and not stage.files()


def insist(attempt: Callable[[], T]) -> T:
    """Return what the attempt returns, once the disk works."""
    for _ in range(10):
        try:
            return attempt()
        except Unavailable:
            continue
    raise AssertionError("it never succeeds")


def test_rows_of_another_run_are_not_taken_for_ones_of_this(stage: Stage) -> None:
    fill(stage, stage.opened(1), 1, range(1))
    with pytest.raises(PipelineError, match="another job or run"):
        stage.store().open(TASK, "run-2", 1)


def test_far_more_rows_than_may_wait_end_the_job_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_store, "OVER_BYTES_MAX", 600)
    stage = Stage(tmp_path, bytes_max=400)
    store = stage.opened(1)
    with pytest.raises(PipelineError, match="out/0.*exceeds staged_bytes_max, 400.*emit less"):
        fill(stage, store, 1, range(10))
    rows = store.last_bundle().next
    store.stage(10)
    commit(store, 10)
    stage.expect(rows)
    store.write(stage.bundle(rows, 3, 10, 1))


@pytest.mark.parametrize("durability", ["process", "os"])
def test_what_is_staged_is_synced_once_per_checkpoint(
    tmp_path: Path, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    stage = Stage(tmp_path, durability=durability)
    store = stage.opened(1)
    for _ in range(2):
        del synced[:]
        fill(stage, store, 1, range(1)) if not store.last_bundle().next else fill(stage, store, 1, range(1, 2), 12)
        each = [Path(path).name.partition("-")[0] for path in synced]
        assert each[-2:] == (["rows", "owner"] if durability == "os" else [])
        assert len(each) == (len(set(each)) if each else 0), "no file is synced twice"


def test_a_sink_with_a_database_is_staged_as_well(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "out.db")
    store = staged_in_directory(sink.open_store(TASK, tmp_path), TASK, tmp_path / "staged", BIG)
    store.open(TASK, RUN, 1)
    rows = sink.encode([{"n": n} for n in range(5)])
    store.write(Bundle(0, 5, rows, 5, 0, 1, ()))
    store.stage(1)
    commit(store, 1)
    store.close()
    assert sink.open_store(TASK, tmp_path).open(TASK, RUN, 2).next == 5


# -- rows that a version before 0031 staged ------------------------------------------------------------------


def leave_earlier(stage: Stage, epochs: range, torn: int = 0) -> None:
    """Leave what a process of an earlier version had staged: twelve rows per epoch, a record for each three."""
    stage.folder.mkdir(parents=True)
    (stage.folder / "owner").write_bytes(framed(encode([TASK, RUN, 1])))
    (stage.folder / "lock").touch()
    first = 0
    for epoch in epochs:
        stored = b""
        for _ in range(4):
            bundle = stage.bundle(first, 3, epoch, 1)
            stored += framed(encode([bundle.first, bundle.count, bundle.rows, bundle.digest, bundle.epoch]))
            first += 3
        (stage.folder / f"e{epoch:012d}.rows").write_bytes(
            stored[: len(stored) - torn if epoch == epochs[-1] else None]
        )


def earlier_files(stage: Stage) -> list[str]:
    return sorted(path.name for path in stage.folder.glob("e*.rows"))


def test_rows_that_an_earlier_version_staged_become_visible(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    leave_earlier(stage, range(3), torn=5)
    store = stage.store()
    assert store.open(TASK, RUN, 2).next == 33, "what was torn is not there"
    assert not earlier_files(stage) and len(stage.files()) == 3
    assert commit(store, 2) == 2
    assert store.discard(2).next == 24
    fill(stage, store, 2, range(2, 3), 24)
    commit(store, 3)
    stage.expect(36)
    assert not stage.files()


def test_rows_of_an_earlier_version_that_are_visible_are_left_out(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    leave_earlier(stage, range(2))
    inner = stage.sink.open_store(TASK, tmp_path)
    inner.open(TASK, RUN, 1)
    rows = stage.bundle(0, 6, 0, 1)
    inner.write(rows)
    inner.close()
    store = stage.store()
    assert store.open(TASK, RUN, 2).next == 24
    commit(store, 2)
    stage.expect(24)


def test_a_process_of_an_earlier_version_finds_that_it_was_replaced(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    leave_earlier(stage, range(1))
    before = (stage.folder / "owner").stat()
    stage.store().open(TASK, RUN, 2)
    assert not os.path.samestat(before, (stage.folder / "owner").stat()), "the file that it has open is gone"


def test_a_damaged_file_of_an_earlier_version_is_refused_with_its_name(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    leave_earlier(stage, range(2))
    path = stage.folder / earlier_files(stage)[0]
    stored = bytearray(path.read_bytes())
    stored[30] ^= 1
    path.write_bytes(stored)
    with pytest.raises(CorruptData, match=path.name):
        stage.store().open(TASK, RUN, 2)
    path.write_bytes(framed(b"no bundle") * 2)
    with pytest.raises(CorruptData, match=f"{path.name} has a record that is not a staged bundle"):
        stage.store().open(TASK, RUN, 2)
    stage.expect(0)
