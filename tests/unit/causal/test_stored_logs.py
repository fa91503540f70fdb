"""Determinants in the shared store: they read back as written, whatever the store does meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from causal.errors import Unavailable
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent
from causal.storage.shared import Depot
from causal.storage.stored_logs import StoredLogs
from operators.testing.stable_files import StableFiles

pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")

Result = TypeVar("Result")
TASK, EPOCHS = 4, 3


class UncertainDepot(Depot):
    """A store of which some creations fail, half of them after the object was created."""

    chance: Random

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        draw = self.chance.random()
        if draw < 0.15:
            raise Unavailable("the store does not answer")
        new = super().create(name, data)
        if draw < 0.3:
            raise Unavailable("the answer was lost")
        return new


def insisted(attempt: Callable[[], Result]) -> Result:
    for _ in range(100):
        try:
            return attempt()
        except Unavailable:
            continue
    raise AssertionError("the store never answered")


@pytest.mark.parametrize("seed", range(20))
def test_logs_are_those_of_files_whatever_answers_are_lost(seed: int, tmp_path: Path) -> None:
    chance, model = Random(seed), StableFiles()
    depot = UncertainDepot(tmp_path.as_uri(), "job/run")
    depot.chance = chance
    incarnation, covered = 0, 0
    for _ in range(6):
        incarnation += chance.randint(1, 2)
        logs = StoredLogs(depot, "count/0", incarnation)
        read = {delta.epoch: delta.bytes for delta in logs.read()}
        known = model.youngest(TASK, incarnation)
        assert {epoch: log for epoch, log in read.items() if epoch >= covered} == known
        collected = [LogDelta(TASK, epoch, 0, chance.randbytes(9)) for epoch in range(covered, covered + EPOCHS)]
        begun: list[Extent] = insisted(lambda logs=logs, collected=collected: logs.begin(collected))  # type: ignore[misc]
        assert begun == [(TASK, delta.epoch, 9) for delta in collected]
        model.begin(TASK, incarnation, collected)
        for _ in range(chance.randint(0, 8)):
            files = model.youngest(TASK, incarnation)
            epochs = sorted(chance.sample(range(covered, covered + EPOCHS), 2))
            fresh = [LogDelta(TASK, each, len(files[each]), chance.randbytes(chance.randint(1, 20))) for each in epochs]
            try:
                logs.append(fresh)
            except Unavailable:
                longer = [LogDelta(d.task, d.epoch, d.offset, d.bytes + b"more") for d in fresh]
                fresh = longer if chance.random() < 0.5 else fresh  # the task has logged more until it tries again
                insisted(lambda logs=logs, fresh=fresh: logs.append(fresh))  # type: ignore[misc]
            model.append(TASK, incarnation, fresh)
        if chance.random() < 0.5:
            covered += 1
            logs.truncate(covered)
            model.truncate(TASK, incarnation, covered)
            newest = [LogDelta(TASK, covered + EPOCHS - 1, 0, b"new")]
            insisted(lambda logs=logs, newest=newest: logs.append(newest))  # type: ignore[misc]
            model.append(TASK, incarnation, newest)


def test_a_zombie_writes_where_no_task_reads(tmp_path: Path) -> None:
    depot = Depot(tmp_path.as_uri(), "job/run")
    zombie, successor = StoredLogs(depot, "count/0", 1), StoredLogs(depot, "count/0", 2)
    zombie.begin([LogDelta(TASK, 0, 0, b"one")])
    successor.begin([LogDelta(TASK, 0, 0, b"two")])
    zombie.append([LogDelta(TASK, 0, 3, b" and more")])
    assert StoredLogs(depot, "count/0", 3).read() == [LogDelta(-1, 0, 0, b"two")]
    assert StoredLogs(depot, "count/1", 3).read() == []


def test_what_an_earlier_version_has_logged_is_not_read_and_goes(tmp_path: Path) -> None:
    depot = Depot(tmp_path.as_uri(), "job/run")
    before = StoredLogs(depot, "count/0", 3)
    before.begin([LogDelta(TASK, 0, 0, b"before")])
    after = StoredLogs(depot, "count/0", 5, first=4)
    assert after.read() == []
    assert StoredLogs(depot, "count/0", 5).read() == [LogDelta(-1, 0, 0, b"before")], "until it is known to be over"
    after.begin([LogDelta(TASK, 0, 0, b"after")])
    before.append([LogDelta(TASK, 0, 6, b" and more")])
    assert StoredLogs(depot, "count/0", 6, first=4).read() == [LogDelta(-1, 0, 0, b"after")]


def test_the_beginning_of_a_decision_that_was_never_journaled_is_replaced(tmp_path: Path) -> None:
    depot = Depot(tmp_path.as_uri(), "job/run")
    before = StoredLogs(depot, "count/0", 1)
    before.begin([LogDelta(TASK, 0, 0, b"before")])
    before.append([LogDelta(TASK, 0, 6, b" and after")])
    StoredLogs(depot, "count/0", 1).begin([LogDelta(TASK, 0, 0, b"again")])
    assert StoredLogs(depot, "count/0", 1).read() == [LogDelta(-1, 0, 0, b"again")]
    assert len(depot.names("determinants")) == 1


def test_objects_that_a_checkpoint_covers_are_removed(tmp_path: Path) -> None:
    depot = Depot(tmp_path.as_uri(), "job/run")
    logs = StoredLogs(depot, "count/0", 1)
    logs.begin([LogDelta(TASK, 0, 0, b"zero")])
    for place in range(3):
        logs.append([LogDelta(TASK, 0, 4 + place, b"x")])
    logs.append([LogDelta(TASK, 0, 7, b"y"), LogDelta(TASK, 1, 0, b"one")])
    logs.truncate(1)
    assert [name[-8:] for name in depot.names("determinants")] == ["00000000", "00000004"]
    assert StoredLogs(depot, "count/0", 2).read()[-1] == LogDelta(-1, 1, 0, b"one")
