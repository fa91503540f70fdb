"""Sessions, of event time against a plain model, and of the wall clock."""

from __future__ import annotations

from typing import Any

import pytest

from causal.errors import OperatorFailed, PipelineError, ReplayDivergence
from operators import Aggregate, Count, Reduce, Session, Sum, every
from tests.unit.operators.scene import Services, parts_of
from tests.unit.operators.window_scene import Driven, S, collected, merged, third, window_chain

GAP_MS = 500


def test_a_session_that_was_told_and_grows_is_told_again_with_all_its_records() -> None:
    def make() -> Any:
        return window_chain(Session(10), Count(), lateness_s=20)

    driven = Driven(make)
    assert driven.give([("a", 0, 1)], 12 * S) == [("a", 1, 0.0, 10.0)]
    assert driven.give([("a", 1, 1)]) == [("a", 2, 0.0, 11.0)], "it has ended by the mark"
    driven.restore(make)
    assert driven.give([("a", 9, 1)]) == [], "it has not ended any more"
    assert driven.give([], 19 * S) == [("a", 3, 0.0, 19.0)]
    driven.give([("a", 0, 1)], 39 * S)
    driven.give([("a", 0, 1)])
    assert driven.chain.counts() == {"w": {"late": 1}}
    assert parts_of(driven.chain, full=True)[1:] == []


def test_a_merge_that_raises_names_the_key_and_the_session() -> None:
    broken: Aggregate[Any, Any] = Aggregate(int, lambda n, record: n + 1, merge=lambda first, later: 1 // 0)
    driven = Driven(lambda: window_chain(Session(10), broken))
    with pytest.raises(OperatorFailed, match="operator 'w', key 'a'.*ZeroDivisionError.*window"):
        driven.give([("a", 0, 1), ("a", 15, 2), ("a", 7, 2)])


def test_sessions_need_merge_and_take_no_trigger() -> None:
    with pytest.raises(PipelineError, match=r"session window 'w' aggregates without merge; use Aggregate\(..., merge"):
        window_chain(Session(1), collected())
    with pytest.raises(PipelineError, match="session window 'w' does not accept a trigger"):
        window_chain(Session(1), Count(), trigger=every(2))
    window_chain(Session(1), Reduce(lambda first, later: first))


# The wall clock.


def clocked() -> Any:
    return window_chain(Session(10, clock="processing"), Sum(third))


def test_by_the_wall_clock_a_batch_has_one_time_and_a_timer_closes() -> None:
    driven = Driven(clocked)
    driven.services.clock_ns = 1000 * S - 1_000_000
    driven.give([("a", 0, 1), ("b", 0, 2), ("a", 0, 4)])
    assert driven.chain.next_timer_ns() == 1010 * S
    driven.services.clock_ns = 1006 * S - 1_000_000
    driven.give([("a", 0, 8)])
    assert driven.fire(1010 * S + 5) == [("b", 2, 1000.0, 1010.0)]
    driven.restore(clocked)
    assert driven.chain.next_timer_ns() == 1016 * S
    driven.services.clock_ns = 990 * S
    driven.give([("b", 0, 16)])
    assert driven.fire(1016 * S) == [("a", 13, 1000.0, 1016.0)]
    assert driven.finish() == [("b", 16, 1010.0, 1020.0)], "the clock stepped back, time does not"
    assert [kind for kind, _ in driven.services.log] == ["clock"] * 3


def test_a_replay_of_the_log_gives_the_same_sessions() -> None:
    live = Driven(clocked)
    batches = [[("a", 0, 1)], [("b", 0, 2), ("a", 0, 4)], [("a", 0, 8)]]
    for number, batch in enumerate(batches):
        live.services.clock_ns += number * 4 * S
        live.give(batch)
    live.fire(live.services.clock_ns + 11 * S)
    again = Driven(clocked)
    again.services = Services(live.services.log)
    for batch in batches:
        again.give(batch)
    again.fire(live.services.clock_ns + 11 * S)
    assert again.out == live.out and len(live.out) == 2
    with pytest.raises(ReplayDivergence):
        again.give([("a", 0, 1)])


def test_several_tasks_become_one_with_the_latest_clock() -> None:
    def header(mark: int | None) -> dict[str, Any]:
        return {"mark": mark}

    stage: Any = clocked()._root.stage
    assert stage.merge_headers([header(None), header(7), header(5)]) == {"mark": 7}


def test_open_windows_are_shown_with_their_bounds_in_seconds() -> None:
    driven = Driven(lambda: window_chain(Session(GAP_MS / 1000), merged()))
    driven.give([("a", 1_700_000_000.25, 1), ("a", 1_700_000_000.5, 2)])
    assert driven.chain.inspect("w", "a") == {
        "w:panes": [[1_700_000_000.25, [1, 2]]],
        "w:sessions": [[1_700_000_000.25, 1_700_000_001.0]],
    }
