"""Rows staged in the shared store: processes die, sleep, lose answers and are replaced while they live.

Each process stages rows of its own making, so that rows of two processes for one position contradict each other.  The
supervisor replaces a process at any moment, and completes a checkpoint when the process that it knows has staged all
rows below it.  Then: what is visible is at any time the beginning of what complete checkpoints cover, and at the end
it is all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import Fenced, Unavailable
from causal.ports import Bundle, StoreState
from operators.sinks.staging import staged_store
from operators.sinks.staging.staged_place import staged_in_store
from operators.sinks.staging.staged_store import StagedStore
from tests.properties.objects import Died, Failing, Memory, Seat, Turns

TASK, RUN = "out/0", "run-1"
TRIES_MAX = 500
T = TypeVar("T")


class World:
    """The state that no process can lose: the supervisor's decisions, and the real store."""

    def __init__(self) -> None:
        self.incarnation = 0
        self.complete = 0
        self.covered: list[bytes] = []
        """The rows below checkpoint `complete`."""
        self.visible: list[bytes] = []
        self.owner = 0


class Visible:
    """The real store as one process sees it."""

    def __init__(self, world: World, step: Callable[[Callable[[], Any]], Any]) -> None:
        self._world = world
        self._step = step
        self._incarnation = 0

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        self._incarnation = incarnation

        def claim() -> StoreState:
            if self._world.owner > incarnation:
                raise Fenced("younger")
            self._world.owner = incarnation
            return StoreState(len(self._world.visible), len(self._world.visible), ())

        state: StoreState = self._step(claim)
        return state

    def last_bundle(self) -> StoreState:
        raise AssertionError("a store of staged rows asks its own journal")

    def write(self, bundle: Bundle) -> None:
        def take() -> None:
            if self._world.owner != self._incarnation:
                raise Fenced("younger")
            rows = bundle.rows.splitlines(keepends=True)
            assert len(rows) == bundle.count
            if bundle.first + bundle.count == len(self._world.visible):
                return
            assert bundle.first == len(self._world.visible), "a row is missing or comes twice"
            self._world.visible += rows
            assert self._world.visible == self._world.covered[: len(self._world.visible)], "visible too early, or wrong"

        self._step(take)

    def truncate(self, epoch: int) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is open."""


class Process:
    """A process that is restored, and stages and commits `epochs` epochs."""

    def __init__(self, world: World, epochs: int, chance: Random) -> None:
        self._world = world
        self._epochs = epochs
        self._chance = chance

    def run(self, seat: Any) -> None:
        world = self._world
        world.incarnation += 1
        incarnation, restored, rows = world.incarnation, world.complete, list(world.covered)
        store = staged_in_store(
            Visible(world, seat._turn if isinstance(seat, Seat) else seat._request),
            TASK,
            1 << 20,
            "memory",
            lambda: seat,
        )
        try:
            insist(lambda: store.open(TASK, RUN, incarnation))
            commit(store, restored)
            state = insist(lambda: store.discard(restored))
            if world.incarnation == incarnation:
                assert state.next == len(rows), "the store is not where the checkpoint was"
            for epoch in range(restored, restored + self._epochs):
                for _ in range(self._chance.randrange(4)):
                    bundle = self._bundle(incarnation, epoch, len(rows))
                    insist(lambda: store.write(bundle))  # noqa: B023
                    rows += bundle.rows.splitlines(keepends=True)
                insist(lambda: store.stage(epoch + 1))  # noqa: B023
                if world.incarnation != incarnation:
                    continue  # a snapshot that the supervisor does not take
                world.complete, world.covered = epoch + 1, list(rows)
                if self._chance.random() < 0.7:
                    commit(store, epoch + 1)
        except Fenced:
            return

    def _bundle(self, incarnation: int, epoch: int, first: int) -> Bundle:
        count = self._chance.randrange(1, 4)
        rows = b"".join(b"%d by %d\n" % (first + number, incarnation) for number in range(count))
        return Bundle(first, count, rows, first + count, epoch, incarnation, ())


def insist(attempt: Callable[[], T]) -> T:
    for _ in range(TRIES_MAX):
        try:
            return attempt()
        except Unavailable:
            continue
    raise AssertionError("it never succeeds")


def commit(store: StagedStore, epoch: int) -> None:
    while insist(lambda: store.commit(epoch)):
        continue


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure objects of two or three bundles."""
    monkeypatch.setattr(staged_store, "COMMIT_BYTES", 50)


def finish(memory: Memory, world: World) -> None:
    """Run one more process without faults, which makes covered rows visible."""
    memory.become_reliable()
    Process(world, 0, Random(0)).run(Seat(memory, lambda: None))
    assert world.visible == world.covered


def history(seed: int) -> None:
    chance = Random(seed)
    world, memory = World(), Memory(chance, chance.choice([0.0, 0.0, 0.05, 0.2]))
    turns = Turns(memory, chance, chance.choice([5, 40, 200]), chance.choice([0.0, 0.02]))
    for _ in range(chance.randrange(2, 6)):
        turns.add(Process(world, chance.randrange(1, 5), chance).run)
    turns.run()
    finish(memory, world)
    rows = [name for name in memory.stored if "/rows/" in name]
    assert not [name for name in rows if not name.rpartition("/")[2].startswith(tuple(f"{n:08d}" for n in range(9)))]


@given(seed=st.integers(0, 2**40))
def test_what_is_visible_is_covered_and_what_is_covered_becomes_visible(seed: int) -> None:
    history(seed)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("problem", [Died, Unavailable])
def test_a_process_fails_at_each_request_before_and_behind_its_effect(done: bool, problem: type[BaseException]) -> None:
    for at in range(1, TRIES_MAX):
        world, memory = World(), Memory()
        failing = Failing(memory, at, done, problem)
        try:
            Process(world, 3, Random(3)).run(failing)
        except Died:
            pass
        finish(memory, world)
        assert not [name for name in memory.stored if "/rows/" in name], "rows are left that no commit needs"
        if failing.left > 0:
            break
    else:
        raise AssertionError("it has no end")
    assert at > 15


def _committing_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored process commits what its checkpoint does not cover."""
    real = StagedStore.commit
    monkeypatch.setattr(StagedStore, "commit", lambda self, epoch: real(self, epoch + 1))


def _without_discarding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StagedStore, "discard", lambda self, epoch: self.last_bundle())


def _without_staging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StagedStore, "stage", lambda self, epoch: None)


def _removing_the_rows_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StagedStore, "_older", lambda self: self._store.names(self._place.folder))


@pytest.mark.parametrize(
    "broken",
    [_committing_early, _without_discarding, _without_staging, _removing_the_rows_of_others],
)
def test_the_test_finds_what_is_broken(broken: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        broken(patch)
        for seed in range(2000):
            try:
                history(seed)
            except Exception:
                return
    raise AssertionError("it finds nothing")
