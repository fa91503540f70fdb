"""Rows that wait for a checkpoint, in front of a real store: crashes anywhere, zombies, torn and damaged files, bounds.

What a user sees is read from the store's own file.  Crashes are forked processes that end without warning at the point
in question.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from causal.errors import CorruptData, Fenced, InvariantViolation, PipelineError, Unavailable
from causal.ports import Bundle, SinkStore, StoreState
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sinks.contract import staging
from operators.sinks.files import staged
from operators.sinks.files.staged import StagedStore
from tests.unit.sinks.deaths import in_a_child

TASK, RUN, BIG = "out/0", "run-1", 1 << 30


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

    def __init__(self, directory: Path, bytes_max: int = BIG, durability: str = "process") -> None:
        self.sink = JsonLinesSink(directory / "rows")
        self.directory = directory
        self.bytes_max, self.durability = bytes_max, durability
        self.watched = Watched(self.sink.open_store(TASK, directory))

    def store(self, on: Callable[[str, str], None] = lambda call, when: None) -> StagedStore:
        """Return the store as a new process has it."""
        self.watched = Watched(self.sink.open_store(TASK, self.directory), on)
        return StagedStore(self.watched, self.directory / "staged" / TASK, self.bytes_max, self.durability)

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
        return sorted(path.name for path in (self.directory / "staged" / TASK).glob("*.rows"))


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


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_rows_are_seen_when_their_epoch_is_committed_and_no_earlier(stage: Stage) -> None:
    store = stage.opened(1)
    fill(stage, store, 1, range(3))
    stage.expect(0)
    assert commit(store, 1) == 1
    stage.expect(12)
    assert commit(store, 1) == 0, "a second commit of the same epoch finds nothing"
    assert commit(store, 3) == 1, "the rows of two epochs are one bundle"
    stage.expect(36)
    assert [bundle.count for bundle in stage.watched.bundles] == [12, 24]
    assert stage.files() == []


def test_a_store_tells_how_many_rows_wait_and_what_room_they_take(stage: Stage) -> None:
    store = stage.opened(1)
    assert store.staged() == (0, 0)
    fill(stage, store, 1, range(2))
    sizes = [path.stat().st_size for path in sorted((stage.directory / "staged" / TASK).glob("*.rows"))]
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
    monkeypatch.setattr(staged, "COMMIT_BYTES", 50)
    monkeypatch.setattr(staged, "WINDOW_BYTES", 64)  # records are cut over several reads
    store = stage.opened(1)
    fill(stage, store, 1, range(1))
    assert commit(store, 1) == 4
    stage.expect(12)


def test_who_is_restored_makes_visible_what_is_covered_and_forgets_the_rest(stage: Stage) -> None:
    fill(stage, stage.opened(1), 1, range(3))
    store = stage.store()
    assert store.open(TASK, RUN, 2).next == 36
    assert commit(store, 2) == 1
    state = store.discard(2)
    assert (state.next, state.digest) == (24, 24)
    stage.expect(24)
    store.write(stage.bundle(24, 5, 2, 2, "other"))
    commit(store, 3)
    assert [row["what"] for row in stage.seen[24:]] == ["other"] * 5


@pytest.mark.parametrize(
    "point", [("write", "before"), ("write", "after"), ("truncate", "before"), ("truncate", "after")]
)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_death_in_a_commit_loses_and_doubles_nothing(
    stage: Stage, point: tuple[str, str], nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged, "COMMIT_BYTES", 50)

    def life(incarnation: int) -> None:
        left = nth

        def die(call: str, when: str) -> None:
            nonlocal left
            left -= (call, when) == point
            if not left:
                os._exit(9)

        store = stage.opened(1, restored=0) if incarnation == 1 else stage.store(die)
        if incarnation == 1:
            fill(stage, store, 1, range(1))
            stage.watched.on = die
        else:
            store.open(TASK, RUN, incarnation)
        for _ in range(2):
            commit(store, 1)
        store.discard(1)

    statuses = [in_a_child(partial(life, number)) for number in (1, 2, 3)]
    assert statuses[0] == 9 and set(statuses) <= {0, 9}
    stage.opened(4, restored=1).close()
    stage.expect(12)


def test_a_death_between_two_removals_of_files_is_made_up_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def life() -> None:
        store = stage.opened(1)
        fill(stage, store, 1, range(3))
        removed, unlink = 0, Path.unlink

        def once(path: Path, missing_ok: bool = False) -> None:
            nonlocal removed
            if removed:
                os._exit(9)
            removed += 1
            unlink(path, missing_ok=missing_ok)

        monkeypatch.setattr(Path, "unlink", once)
        commit(store, 2)

    assert in_a_child(life) == 9
    assert len(stage.files()) == 2
    assert stage.opened(2, restored=2).last_bundle().next == 24
    stage.expect(24)


def test_a_zombie_neither_stages_nor_commits_nor_removes(stage: Stage) -> None:
    zombie = stage.opened(1)
    fill(stage, zombie, 1, range(2))
    young = stage.store()
    young.open(TASK, RUN, 2)
    acts: list[Callable[[], object]] = [
        lambda: zombie.write(stage.bundle(24, 3, 2, 1)),
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


def test_a_torn_tail_is_cut_off_and_written_again(stage: Stage) -> None:
    fill(stage, stage.opened(1), 1, range(1))
    path = stage.directory / "staged" / TASK / stage.files()[0]
    os.truncate(path, path.stat().st_size - 5)
    store = stage.store()
    assert store.open(TASK, RUN, 2).next == 9
    store.write(stage.bundle(9, 3, 0, 2))
    commit(store, 1)
    stage.expect(12)


def test_a_damaged_record_is_refused_with_its_file(stage: Stage) -> None:
    fill(stage, stage.opened(1), 1, range(1))
    path = stage.directory / "staged" / TASK / stage.files()[0]
    stored = bytearray(path.read_bytes())
    stored[30] ^= 1
    path.write_bytes(stored)
    with pytest.raises(CorruptData, match=path.name):
        stage.store().open(TASK, RUN, 2)
    stage.expect(0)


def test_rows_of_another_run_are_not_taken_for_ones_of_this(stage: Stage) -> None:
    fill(stage, stage.opened(1), 1, range(1))
    with pytest.raises(PipelineError, match="another job or run"):
        stage.store().open(TASK, "run-2", 1)


def test_far_more_rows_than_may_wait_end_the_job_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "OVER_BYTES_MAX", 600)
    stage = Stage(tmp_path, bytes_max=400)
    store = stage.opened(1)
    with pytest.raises(PipelineError, match="out/0.*staged_bytes_max is 400.*emit less"):
        fill(stage, store, 1, range(10))
    rows = store.last_bundle().next
    commit(store, 10)
    stage.expect(rows)
    store.write(stage.bundle(rows, 3, 10, 1))


@pytest.mark.parametrize("durability", ["process", "os"])
def test_what_is_staged_is_synced_once_per_checkpoint(
    tmp_path: Path, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    stage = Stage(tmp_path, durability=durability)
    store = stage.opened(1)
    fill(stage, store, 1, range(1))
    assert [Path(path).name for path in synced] == (stage.files() if durability == "os" else [])


def test_a_sink_with_a_database_is_staged_as_well(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "out.db")
    store = StagedStore(sink.open_store(TASK, tmp_path), tmp_path / "staged", BIG)
    store.open(TASK, RUN, 1)
    rows = sink.encode([{"n": n} for n in range(5)])
    store.write(Bundle(0, 5, rows, 5, 0, 1, ()))
    commit(store, 1)
    store.close()
    assert sink.open_store(TASK, tmp_path).open(TASK, RUN, 2).next == 5
