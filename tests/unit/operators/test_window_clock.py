"""Windows of wall-clock time with aggregates, and sliding ones: what the log says of their contents adds up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError, ReplayDivergence
from operators import Count, Pipeline, Sliding, Sum, Tumbling, every
from operators.testing import At, every_crash, run
from tests.unit.operators.scene import NoSink, Services, parts_of, source
from tests.unit.operators.window_scene import Driven, S, third, window_chain


def tumbling() -> Any:
    return window_chain(Tumbling(10, clock="processing"), Sum(third))


def sliding(function: bool = False) -> Any:
    def emit(key: Any, records: list[Any], window: Any) -> Any:
        yield (key, sum(record[2] for record in records), window.start, window.end)

    return window_chain(Sliding(10, 5, clock="processing"), emit if function else Sum(third))


def windows_of(services: Services) -> list[Any]:
    return [answer for kind, answer in services.log if kind == "window"]


def test_an_aggregate_is_told_at_the_end_by_one_reading_per_window() -> None:
    driven = Driven(tumbling)
    driven.services.clock_ns = 1003 * S
    driven.give([("b", 0, 1), ("a", 0, 2)])
    driven.give([("b", 0, 4)])
    driven.restore(tumbling)
    assert driven.chain.next_timer_ns() == 1010 * S
    assert driven.fire(1010 * S) == [("a", 2, 1000.0, 1010.0), ("b", 5, 1000.0, 1010.0)]
    assert driven.chain.next_timer_ns() is None
    driven.services.clock_ns = 1008 * S
    driven.give([("a", 0, 8)])
    assert driven.finish() == [("a", 8, 1010.0, 1020.0)], "an end is never used twice"
    assert [kind for kind, _ in driven.services.log] == ["clock", "window", "clock", "window"]
    assert windows_of(driven.services) == [(0, 1010 * S, ((0, 3),)), (0, 1020 * S, ((0, 1),))]
    assert parts_of(driven.chain, full=True)[1:] == []


@pytest.mark.parametrize("function", [False, True])
def test_the_offset_of_tumbling_windows_counts_for_functions_and_aggregates(function: bool) -> None:
    def rows(key: Any, records: list[Any], window: Any) -> Any:
        yield (key, sum(record[2] for record in records), window.start, window.end)

    def shifted() -> Any:
        return window_chain(Tumbling(10, offset_s=3, clock="processing"), rows if function else Sum(third))

    driven = Driven(shifted)
    driven.services.clock_ns = 1001 * S
    driven.give([("a", 0, 1)])
    driven.restore(shifted)
    assert driven.chain.next_timer_ns() == 1003 * S
    assert driven.fire(1003 * S) == [("a", 1, 993.0, 1003.0)]
    driven.services.clock_ns = 1003 * S
    driven.give([("a", 0, 2)])
    assert driven.finish() == [("a", 2, 1003.0, 1013.0)]


@pytest.mark.parametrize("function", [False, True])
def test_a_sliding_window_fires_until_its_last_record_has_left(function: bool) -> None:
    driven = Driven(lambda: sliding(function))
    driven.services.clock_ns = 1003 * S
    driven.give([("a", 0, 1)])
    assert driven.fire(1005 * S) == [("a", 1, 995.0, 1005.0)]
    driven.give([("a", 0, 2), ("b", 0, 4)])
    driven.restore(lambda: sliding(function))
    assert driven.fire(1010 * S) == [("a", 3, 1000.0, 1010.0), ("b", 4, 1000.0, 1010.0)]
    assert driven.fire(1015 * S) == [("a", 2, 1005.0, 1015.0), ("b", 4, 1005.0, 1015.0)]
    assert driven.chain.next_timer_ns() is None
    assert [entry[2] for entry in windows_of(driven.services)] == [
        ((0, 0), (0, 1)), ((0, 0), (0, 2)), ((0, 1), (0, 0))
    ]  # fmt: skip


@given(counts=st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_the_differences_add_up_to_what_each_window_holds(counts: list[int]) -> None:
    driven = Driven(lambda: window_chain(Sliding(15, 5, clock="processing"), Count()))
    total = number = 0
    for slide, count in enumerate(counts):
        end_ns = (1005 + 5 * slide) * S
        driven.services.clock_ns = end_ns - 4 * S
        driven.give([("a", 0, 1)] * count)
        rows = driven.fire(end_ns)
        for _, end, (gone, added) in windows_of(driven.services)[number:]:
            total += added[1] - gone[1]
            assert (end, total) == (end_ns, sum(counts[max(0, slide - 2) : slide + 1]))
            assert rows == [("a", total, end_ns / S - 15, end_ns / S)]
        number = len(windows_of(driven.services))


def test_a_replay_whose_window_holds_something_else_is_a_divergence() -> None:
    live = Driven(sliding)
    live.give([("a", 0, 1), ("a", 0, 2)])
    end_ns = live.chain.next_timer_ns()
    assert end_ns is not None
    live.fire(end_ns)
    again = Driven(sliding)
    again.services = Services(live.services.log)
    again.give([("a", 0, 1)])
    with pytest.raises(ReplayDivergence):
        again.fire(end_ns)


def test_the_end_of_the_input_tells_all_windows_that_are_open() -> None:
    driven = Driven(sliding)
    driven.services.clock_ns = 1003 * S
    driven.give([("a", 0, 1)])
    assert driven.finish() == [("a", 1, 995.0, 1005.0), ("a", 1, 1000.0, 1010.0)]


def header_of(mark_ns: int | None, **clock: Any) -> dict[str, Any]:
    """Return what a snapshot keeps of a stage at this mark, whose clock has these values."""
    stage: Any = sliding()._root.stage
    stage.mark_ns = mark_ns
    for name, value in clock.items():
        assert hasattr(stage, f"_{name}")
        setattr(stage, f"_{name}", value)
    header: dict[str, Any] = stage.header()
    return header


def test_the_clocks_of_several_tasks_become_one() -> None:
    stage: Any = sliding()._root.stage
    first = header_of(10, end_ns=1000 * S, last_end_ns=995 * S, slides=[1, 2], last_records=4)
    second = header_of(None, end_ns=None, last_end_ns=1000 * S, slides=[0], last_records=3)
    merged = header_of(10, end_ns=1005 * S, last_end_ns=1000 * S, slides=[3], last_records=7)
    assert stage.merge_headers([{**first, "mark": 10}, {**second, "mark": 10}]) == merged
    ahead = stage.merge_headers([first, second])
    assert ahead.pop("floors") and ahead == {**merged, "mark": None}, "the one that is further has floors"


def test_windows_with_functions_of_several_tasks_become_one() -> None:
    def function(key: Any, records: list[Any], window: Any) -> Any:
        yield (key, sorted(record[2] for record in records), window.start, window.end)

    def make() -> Any:
        return window_chain(10, function)

    tasks = [Driven(make), Driven(make)]
    for number, task in enumerate(tasks):
        task.services.clock_ns = (1003 + 10 * number) * S
        task.give([("ab"[number], 0, 1)])
    tasks[1].fire(1020 * S)
    tasks[0].give([("a", 0, 2)])
    stages: list[Any] = [task.chain._root.stage for task in tasks]  # type: ignore[attr-defined]
    headers = [stage.freeze(True)[0] for stage in stages]
    assert [header["end_ns"] for header in headers] == [1010 * S, None]
    merged = stages[0].merge_headers(headers)
    assert (merged["end_ns"], merged["last_end_ns"]) == (1030 * S, 1020 * S)
    assert (merged["arrivals"], merged["since"]) == (3, 1)


def test_what_the_wall_clock_does_not_take() -> None:
    mistakes: list[tuple[Callable[[], Any], dict[str, Any], str]] = [
        (lambda: Sliding(10, 4, clock="processing"), {}, "size_s 10 .* not a multiple of its every_s 4"),
        (lambda: Sliding(1e6, 0.5), {}, "puts each record in 2000000 windows, but the limit is 1000"),
        (lambda: Tumbling(10, clock="processing"), {"lateness_s": 1}, "uses the wall clock"),
        (lambda: Tumbling(10, clock="processing"), {"trigger": every(2)}, "does not accept a trigger; use Global"),
    ]
    for assigner, options, message in mistakes:
        with pytest.raises(PipelineError, match=message):
            window_chain(assigner(), Count(), **options)


def _job(function: bool) -> Pipeline:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).key_by(lambda r: r[0])
    stream.window("w", Sliding(10, 5, clock="processing"), Sum(third)).sink("out", NoSink())
    if function:
        again = pipeline.stream("in").key_by(lambda r: r[0])
        again.window("x", Tumbling(10, clock="processing"), Count()).sink("counts", NoSink())
    return pipeline


INPUTS = {"in": [At(float(at), (key, at, 1)) for key, at in [("a", 1), ("b", 4), ("a", 9), ("a", 22), ("b", 23)]]}


@pytest.mark.parametrize("crash", every_crash(_job(True), INPUTS, checkpoint_every=2), ids=str)
def test_a_crash_behind_any_record_contradicts_nothing(crash: dict[str, int]) -> None:
    result = run(_job(True), INPUTS, checkpoint_every=2, crash=crash)
    assert result.recoveries == 1
    by_end: dict[Any, Any] = {}
    for key, value, start, end in result["out"]:
        assert by_end.setdefault((key, end), value) == value and end - start == 10
    assert sum(by_end.values()) == 2 * 5, "each record is in two windows"
    assert sum(row[1] for row in result["counts"]) == 5
