"""Count windows, global windows, and triggers: they emit by what has come, not by time alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import OperatorFailed, PipelineError
from operators import (
    Aggregate,
    Count,
    CountWindow,
    Firing,
    Global,
    Pipeline,
    Reduce,
    Sliding,
    Sum,
    Trigger,
    Tumbling,
    Window,
    at_end,
    every,
    every_s,
)
from operators.testing import run
from tests.unit.operators.scene import NoSink, source
from tests.unit.operators.window_scene import Driven, S, third, window_chain


def values(key: Any, records: list[Any], window: Window) -> Any:
    yield (key, [record[2] for record in records], window.start, window.end)


def rows(*values: int, key: str = "a") -> list[Any]:
    return [(key, 0, value) for value in values]


# Count windows.


def test_a_record_that_a_count_window_refuses_does_not_count() -> None:
    strict: Aggregate[Any, Any] = Aggregate(int, lambda total, record: total + int(record[2]))
    driven = Driven(lambda: window_chain(CountWindow(2), strict, job={"on_error": "dead-letter"}))
    driven.give([("a", 0, "1"), ("a", 0, "x"), ("a", 0, "2")])
    assert driven.out == [("a", 3, 0, 2)]
    with pytest.raises(OperatorFailed, match="operator 'w', key 'a'.*position 0 "):
        Driven(lambda: window_chain(CountWindow(2), strict)).give([("a", 0, "x")])


# Global windows.


def test_every_so_many_seconds_of_event_time() -> None:
    def make() -> Any:
        return window_chain(Tumbling(100), Count(), trigger=every_s(10))

    driven = Driven(make)
    driven.give([("a", 1, 1)], 1 * S)
    assert driven.out == [("a", 1, 0.0, 100.0)], "the first mark of all"
    driven.give([("a", 1, 1)], 9 * S)
    assert driven.out[1:] == []
    driven.restore(make)
    assert driven.give([], 35 * S) == [("a", 2, 0.0, 100.0)]
    assert driven.give([], 90 * S) == [], "nothing has come since"
    driven.give([("a", 91, 1)], 95 * S)
    assert driven.give([], 100 * S) == [("a", 3, 0.0, 100.0)]


def test_every_so_many_seconds_of_the_wall_clock() -> None:
    def make() -> Any:
        return window_chain(Global(), Count(), trigger=every_s(10, clock="processing", purge=True))

    driven = Driven(make)
    driven.services.clock_ns = 1003 * S
    driven.give([*rows(1, 2), *rows(3, key="b")])
    driven.restore(make)
    assert driven.chain.next_timer_ns() == 1010 * S
    assert driven.fire(1010 * S) == [("a", 2, 0, 2), ("b", 1, 0, 1)]
    assert driven.chain.next_timer_ns() is None
    driven.give(rows(3))
    assert driven.finish() == [("a", 1, 2, 3)]
    assert [kind for kind, _ in driven.services.log] == ["clock"] * 2


def test_the_wall_clock_finds_a_window_that_has_ended_already() -> None:
    driven = Driven(lambda: window_chain(Tumbling(10), Count(), trigger=every_s(10, clock="processing"), lateness_s=90))
    driven.services.clock_ns = 1003 * S
    assert driven.give([("a", 1, 1)], 10 * S) == [("a", 1, 0.0, 10.0)]
    assert driven.fire(1010 * S) == [], "all of it has been emitted"
    assert driven.chain.next_timer_ns() is None
    assert driven.give([("a", 2, 1)]) == [("a", 2, 0.0, 10.0)]


class Threshold(Trigger):
    """Fires as soon as the values in it are ten together, then emptied; and ten seconds after a -1."""

    def on_record(self, state: dict[str, Any], record: Any, window: Window, mark_s: float | None) -> Firing:
        if record[2] == -1:
            state["at"] = record[1] + 10
            return Firing.NOTHING
        state["sum"] = state.get("sum", 0) + record[2]
        if state["sum"] < 10:
            return Firing.NOTHING
        state["sum"] = 0
        return Firing.PURGE

    def wake_at_s(self, state: dict[str, Any], window: Window) -> float | None:
        return state.get("at")

    def on_time(self, state: dict[str, Any], window: Window, at_s: float) -> Firing:
        del state["at"]
        return Firing.FIRE


class TenSeconds(Trigger):
    """Looks at no record; asks for a call at each full ten seconds after the window's start."""

    def wake_at_s(self, state: dict[str, Any], window: Window) -> float | None:
        return window.start + 10 * (state.get("calls", 0) + 1) if state.get("calls", 0) < 2 else None

    def on_time(self, state: dict[str, Any], window: Window, at_s: float) -> Firing:
        state["calls"] = int((at_s - window.start) // 10)
        return Firing.FIRE


class Asked(TenSeconds):
    """The same, but it is asked for each record."""

    def on_record(self, state: dict[str, Any], record: Any, window: Window, mark_s: float | None) -> Firing:
        return Firing.NOTHING


def listed_in(total: list[Any], record: Any) -> list[Any]:
    return [*total, record[2]]


@pytest.mark.parametrize("assigner", [Tumbling(30), Sliding(30, 20), Global()], ids=lambda each: type(each).__name__)
@given(
    contents=st.sampled_from([values, Count(), Aggregate(list, listed_in), Reduce(max)]),
    lateness_s=st.sampled_from([0.0, 15.0]),
    batches=st.lists(
        st.tuples(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 80)), min_size=2), st.integers(0, 90)),
        min_size=1,
        max_size=5,
    ),
    acts=st.lists(st.integers(0, 2), min_size=1, max_size=4),
)
def test_a_trigger_that_looks_at_no_record_is_not_asked_and_nothing_else_changes(
    assigner: Any, contents: Any, lateness_s: float, batches: list[Any], acts: list[int]
) -> None:
    outs = []
    for trigger in (TenSeconds(), Asked()):
        options: dict[str, Any] = {} if isinstance(assigner, Global) else {"lateness_s": lateness_s}

        def make(trigger: Trigger = trigger, options: dict[str, Any] = options) -> Any:
            return window_chain(assigner, contents, trigger=trigger, **options)

        driven, mark_s, number = Driven(make), 0, 0
        for place, (batch, at_s) in enumerate(batches):
            mark_s = max(mark_s, at_s)
            driven.give([(key, time_s, number + index) for index, (key, time_s) in enumerate(batch)], mark_s * S)
            number += len(batch)
            if acts[place % len(acts)] == 1:
                driven.snapshot()
            elif acts[place % len(acts)] == 2:
                driven.restore(make)
        driven.finish()
        outs.append(driven.out)
    assert outs[0] == outs[1]


def test_a_trigger_of_ones_own() -> None:
    def make() -> Any:
        return window_chain(Sliding(100, 100), values, trigger=Threshold())

    driven = Driven(make)
    driven.give([("a", 1, 4), ("a", 2, 5)])
    driven.restore(make)
    assert driven.give([("a", 3, 6), ("a", 4, -1)], 5 * S) == [("a", [4, 5, 6], 0.0, 100.0)]
    driven.restore(make)
    assert driven.give([], 13 * S) == []
    assert driven.give([], 14 * S) == [("a", [-1], 0.0, 100.0)]
    assert driven.finish() == []


def test_a_trigger_that_misbehaves_stops_the_job() -> None:
    class Wrong(Trigger):
        def on_record(self, state: dict[str, Any], record: Any, window: Window, mark_s: float | None) -> Any:
            return True

    class Stuck(Trigger):
        def wake_at_s(self, state: dict[str, Any], window: Window) -> float | None:
            return 1.0

    class Broken(Trigger):
        def on_record(self, state: dict[str, Any], record: Any, window: Window, mark_s: float | None) -> Firing:
            raise KeyError("sum")

    for trigger, message in [
        (Wrong(), "operator 'w'.*a trigger returned True; return Firing.NOTHING"),
        (Stuck(), "operator 'w'.*a time that had already passed"),
        (Broken(), "operator 'w'.*KeyError: 'sum'"),
    ]:
        driven = Driven(lambda trigger=trigger: window_chain(Tumbling(10), Count(), trigger=trigger))  # type: ignore[misc]
        with pytest.raises(OperatorFailed, match=message):
            driven.give([("a", 1, 1)], 2 * S)


def test_what_cannot_be() -> None:
    mistakes: list[tuple[Callable[[], Any], str]] = [
        (lambda: window_chain(CountWindow(0), Count()), "n 0; use a whole number from 1"),
        (
            lambda: window_chain(CountWindow(2, 3), Count()),
            "every 3 .* exceeds its n 2, so some records would be in no window",
        ),
        (lambda: window_chain(CountWindow(2), Count(), lateness_s=1), "count window 'w' has no lateness"),
        (lambda: window_chain(CountWindow(2), Count(), trigger=every(1)), "count window 'w' does not accept a trigger"),
        (lambda: window_chain(Global(), Count(), trigger=every(0)), "trigger every has n 0; use a whole number"),
        (lambda: window_chain(Global(), Count(), trigger=every_s(0)), "trigger every_s has seconds 0; use seconds"),
        (lambda: window_chain(Global(), Count(), trigger="x"), "trigger of window 'w' is a str; use every"),
    ]
    for make, message in mistakes:
        with pytest.raises(PipelineError, match=message):
            make()
    pipeline = Pipeline("test")
    pipeline.source("in", source()).window("w", Global(), Count(), trigger=every_s(1)).sink("out", NoSink())
    with pytest.raises(PipelineError, match="'w' uses event time, but 'in' has none"):
        pipeline.check()


def test_neither_count_nor_global_windows_need_time() -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source())
    stream.window("w", CountWindow(2), Sum(third)).sink("out", NoSink())
    pipeline.stream("in").window("g", Global(), Sum(third), trigger=at_end()).sink("all", NoSink())
    result = run(pipeline, {"in": rows(1, 2, 3)})
    assert result["out"] == [(None, 3, 0, 2)] and result["all"] == [(None, 6, 0, 3)]
    assert {kind for kind, count in result.determinant_bytes.items() if count} <= {"order", "barrier"}
