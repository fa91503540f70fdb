"""The budget of a batch: parts add up, each function is charged to one, and every row of the source comes through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.costs import budget_parts
from benchmarks.costs.budget_bare import Timed
from benchmarks.costs.budget_drive import typical
from benchmarks.costs.budget_parts import ENCODE, LOG, TASKS, TURN, PartClock
from benchmarks.costs.budget_replay import Replayed
from benchmarks.harness.runs import RunFailed
from benchmarks.report import tables


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that stands still until a test adds to its one number."""
    now_ns = [0]
    monkeypatch.setattr(budget_parts, "thread_time_ns", lambda: now_ns[0])
    return now_ns


def test_a_part_is_charged_what_is_its_own(ticking: list[int]) -> None:
    clock = PartClock()

    def spend(us: int) -> None:
        ticking[0] += us * 1000

    inner = clock.timed(LOG, lambda: spend(5))

    def outer() -> str:
        spend(2)
        inner()
        spend(3)
        return "made"

    clock.start()
    spend(1)
    assert clock.timed(ENCODE, outer)() == "made"
    spend(4)
    clock.stop()
    spend(100)
    assert clock.taken() == {LOG: 5, ENCODE: 5, TURN: 5}
    assert clock.taken() == {}


def test_a_part_is_charged_although_it_raises(ticking: list[int]) -> None:
    clock = PartClock()

    def fail() -> None:
        ticking[0] += 7000
        raise ValueError("no")

    clock.start()
    with pytest.raises(ValueError):
        clock.timed(ENCODE, fail)()
    ticking[0] += 1000
    clock.stop()
    assert clock.taken() == {ENCODE: 7, TURN: 1}


def test_every_place_is_there_and_one_that_is_gone_is_named() -> None:
    for places in budget_parts.PLACES.values():
        for place in places:
            owner, name = budget_parts._owner(place)
            assert callable(vars(owner)[name])
    with pytest.raises(RunFailed, match=r"causal\.channels\.wire\.unpack_nothing is not there any more"):
        budget_parts._owner("causal.channels.wire.unpack_nothing")
    with pytest.raises(RunFailed, match=r"causal\.channels\.wire\.Nothing\.pack"):
        budget_parts._owner("causal.channels.wire.Nothing.pack")


def test_the_slowest_batches_are_left_out() -> None:
    samples = [{"a": 1.0, "b": 1.0}, {"a": 1.0}, {"a": 1.0}, {"a": 1.0}, {"a": 100.0}]
    assert typical(samples) == {"a": 1.0, "b": 0.25}


def test_the_bare_steps_count_every_row() -> None:
    timed = Timed(10)
    times = timed.step() + timed.step()
    assert timed.bare.rows == 20 and times == sorted(times)


@pytest.mark.parametrize("per_turn", [0, 1])
def test_a_replay_performs_every_event_of_the_log(per_turn: int) -> None:
    plane = Replayed(60, per_turn)
    events = plane.replay()
    assert 0 < events <= 60 and plane.rows() == 120


def test_all_parts_of_all_tasks_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    options = ["--sizes", "64,1", "--batches", "20", "--events", "50", "--rounds", "1"]
    assert main(["budget", *options, "--json", str(path)]) == 0
    result = json.loads(path.read_text())
    figures = result["figures"]
    expected = {
        "source": ("read", "operators", "route", "log", "encode", "keep", "share delta", "send", "socket out", "turn"),
        "count": ("socket in", "receive", "merge delta", "decode", "operators", "log", "encode", "keep", "socket out"),
        "sink": ("socket in", "receive", "merge delta", "decode", "log", "write", "turn"),
    }
    for size in (64, 1):
        for task in TASKS:
            assert f"{size}/whole/{task}/whole" in figures
            for part in expected[task]:
                assert f"{size}/parts/{task}/{part}" in figures, (size, task, part)
    text = tables.budget(result)
    assert (
        "64 records per batch" in text
        and "1 record per batch" in text
        and "as many per turn as a replay performs" in text
    )
    assert text.count("**sum**") == 2
