"""Sessions, of event time against a plain model, and of the wall clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import OperatorFailed, PipelineError, ReplayDivergence
from operators import Aggregate, Count, Pipeline, Reduce, Session, Sum, Window, every
from operators.testing import At, every_crash, run
from tests.unit.operators.scene import NoSink, Services, parts_of, source
from tests.unit.operators.test_window_panes import BOUND_MS, collected, merged, runs, values_of_window
from tests.unit.operators.window_scene import Driven, Row, S, drive, third, window_chain

GAP_MS = 500


def expected(batches: Sequence[Sequence[Row]]) -> Counter[Any]:
    """Sort each key's records by time, and cut where nothing comes for the gap."""
    sessions: Counter[Any] = Counter()
    rows = sorted((row for batch in batches for row in batch), key=lambda row: (row[0], row[1]))
    session: list[Row] = []
    for row in [*rows, ("", 0, 0)]:
        if session and (row[0] != session[-1][0] or round((row[1] - session[-1][1]) * 1000) >= GAP_MS):
            values = tuple(sorted(each[2] for each in session))
            end = (round(session[-1][1] * 1000) + GAP_MS) / 1000
            sessions[(session[0][0], values, session[0][1], end)] += 1
            session = []
        session.append(row)
    return sessions


@pytest.mark.parametrize("contents", [merged, lambda: values_of_window], ids=["aggregate", "function"])
@given(drawn=runs())
def test_sessions_are_those_of_the_model_whatever_the_order(contents: Any, drawn: Any) -> None:
    batches, acts = drawn
    driven = drive(lambda: window_chain(Session(GAP_MS / 1000), contents()), batches, BOUND_MS, acts)
    assert Counter((k, tuple(v), s, e) for k, v, s, e in driven.out) == expected(batches)
    assert driven.chain.counts() == {}
    assert parts_of(driven.chain, full=True)[1:] == [], "nothing is left"


@given(drawn=runs(), lateness_s=st.sampled_from([0.3, 1, 100]))
def test_with_lateness_the_last_emission_is_what_would_have_been_emitted_at_once(drawn: Any, lateness_s: float) -> None:
    """Marks that are too early by the whole bound: late records within the lateness are taken in, others dropped."""
    batches, acts = drawn

    def make() -> Any:
        return window_chain(Session(GAP_MS / 1000), merged(), lateness_s=lateness_s, late=True)

    driven = drive(make, batches, 0, acts)
    late = Counter(map(tuple, driven.late))
    assert late.total() == driven.chain.counts().get("w", {}).get("late", 0)
    assert lateness_s < 100 or not late
    rows = [row for batch in batches for row in batch]
    taken = Counter(rows) - late
    last = {value: row for row in driven.out for value in row[1]}
    assert set(last) == {row[2] for row in taken}, "each record that was taken is in a session that was emitted"
    if not late:
        finals = {(k, tuple(v), s, e) for k, v, s, e in last.values()}
        assert finals == set(expected(batches))


def test_a_record_between_three_sessions_makes_them_one() -> None:
    def make() -> Any:
        return window_chain(Session(10), lambda k, rs, w: [(k, [r[2] for r in rs], w.start, w.end)])

    driven = Driven(make)
    driven.give([("a", 0, 1), ("a", 22, 3), ("a", 11, 2), ("b", 5, 9)])
    driven.snapshot()
    driven.give([("a", 6, 4), ("a", 16, 5)])
    driven.restore(make)
    assert driven.finish() == [("b", [9], 5.0, 15.0), ("a", [1, 2, 4, 3, 5], 0.0, 32.0)]


def test_one_record_reaches_both_neighbours() -> None:
    driven = Driven(lambda: window_chain(Session(10), Sum(third)))
    driven.give([("a", 0, 1), ("a", 15, 2), ("a", 30, 4)])
    driven.give([("a", 8, 8), ("a", 22.5, 16)])
    assert driven.finish() == [("a", 31, 0.0, 40.0)]


def test_what_comes_at_the_end_of_a_session_begins_another() -> None:
    driven = Driven(lambda: window_chain(Session(10), Count()))
    assert driven.give([("a", 0, 1), ("a", 10, 1)], 10 * S) == [("a", 1, 0.0, 10.0)]
    assert driven.finish() == [("a", 1, 10.0, 20.0)]


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
    with pytest.raises(PipelineError, match=r"session window 'w' aggregates without merge; give Aggregate\(..., merge"):
        window_chain(Session(1), collected())
    with pytest.raises(PipelineError, match="session window 'w' takes no trigger"):
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


def _job() -> Pipeline:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).key_by(lambda r: r[0])
    stream.window("w", Session(10, clock="processing"), Sum(third)).sink("out", NoSink())
    return pipeline


INPUTS = {"in": [At(float(at), (key, at, 1)) for key, at in [("a", 1), ("b", 5), ("a", 9), ("a", 22), ("b", 23)]]}


@pytest.mark.parametrize("crash", every_crash(_job(), INPUTS, checkpoint_every=2), ids=str)
def test_a_crash_behind_any_record_contradicts_nothing(crash: dict[str, int]) -> None:
    result = run(_job(), INPUTS, checkpoint_every=2, crash=crash)
    assert result.recoveries == 1
    sums: Counter[str] = Counter()
    for key, value, _, _ in result["out"]:
        sums[key] += value
    assert sums == {"a": 3, "b": 2}, "each record is in one session"
    assert len({(row[0], row[2]) for row in result["out"]}) == len(result["out"]), "none is emitted twice"


def test_a_window_function_sees_the_bounds_of_its_session() -> None:
    seen: list[Window] = []
    driven = Driven(lambda: window_chain(Session(10), lambda k, rs, w: seen.append(w)))
    driven.give([("a", 1.5, 0), ("a", 3, 0)])
    assert driven.finish() == [] and seen == [Window(1.5, 13.0)]


def test_open_windows_are_shown_with_their_bounds_in_seconds() -> None:
    driven = Driven(lambda: window_chain(Session(GAP_MS / 1000), merged()))
    driven.give([("a", 1_700_000_000.25, 1), ("a", 1_700_000_000.5, 2)])
    assert driven.chain.inspect("w", "a") == {
        "w:panes": [[1_700_000_000.25, [1, 2]]],
        "w:sessions": [[1_700_000_000.25, 1_700_000_001.0]],
    }
