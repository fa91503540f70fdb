"""Tumbling and sliding windows of event time, against a plain model: any order within the bound, any cut, restores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from causal.errors import OperatorFailed, PipelineError
from operators import Aggregate, Count, Max, Mean, Min, Pipeline, Reduce, Sliding, Sum, Tumbling, Window
from operators.testing import run
from tests.unit.operators.scene import NoSink, Services, listed, parts_of, records_in, source
from tests.unit.operators.window_scene import (
    Driven,
    Row,
    S,
    collected,
    merged,
    second,
    third,
    values_of_window,
    window_chain,
)


def test_a_checkpoint_with_an_accumulator_per_window_is_refused_in_one_line() -> None:
    before = window_chain(Sliding(1, 0.25), collected())
    before.deliver(0, listed([("a", 0.5, 1)]), 0, Services())
    now = window_chain(Sliding(1, 0.25), merged())
    with pytest.raises(PipelineError, match="^window 'w' was .* of Aggregate when .* is .* of Aggregate in slices now"):
        now.restore(parts_of(before, full=True))


def test_aggregates_take_back_what_they_added() -> None:
    rows = [("a", 0, value) for value in [5, 1, 3, 1]]
    for aggregate in [Count(), Sum(third), Mean(third), Min(third).retracting(), Max(third).retracting()]:
        accumulated = aggregate.initial()
        for row in rows:
            accumulated = aggregate.add(accumulated, row)
        plain, subtract = aggregate.initial(), aggregate.subtract
        assert subtract is not None
        for row in rows[:2]:
            accumulated = subtract(accumulated, row)
        for row in rows[2:]:
            plain = aggregate.add(plain, row)
        result = aggregate.result or (lambda value: value)
        assert result(accumulated) == result(plain), type(aggregate)
    assert Min(third).subtract is None and Reduce(min).subtract is None


def test_within_the_lateness_a_window_is_emitted_again_for_each_late_record() -> None:
    def make() -> Any:
        return window_chain(Tumbling(10), Count(), lateness_s=5)

    driven = Driven(make)
    assert driven.give([("a", 3, 0), ("b", 3, 0)], 10 * S) == [("a", 1, 0.0, 10.0), ("b", 1, 0.0, 10.0)]
    assert driven.give([("a", 9, 0), ("a", 8, 0)], 11 * S) == [("a", 2, 0.0, 10.0), ("a", 3, 0.0, 10.0)]
    driven.restore(make)
    assert driven.give([("c", 2, 0)]) == [("c", 1, 0.0, 10.0)], "a window that had not been emitted"
    assert driven.give([("a", 1, 0)], 15 * S) == [("a", 4, 0.0, 10.0)]
    assert driven.give([("a", 1, 0)]) == [] and driven.chain.counts() == {"w": {"late": 1}}
    assert parts_of(driven.chain, full=True)[1:] == []
    assert driven.give([("a", 16, 0)], 100 * S) == [("a", 1, 10.0, 20.0)], "end and lateness together: emitted once"
    assert driven.finish() == []


def test_the_slices_of_a_window_stay_as_they_are() -> None:
    """A merge, a result or a function may change its arguments: the next window has it as it was."""

    def spoil(key: Any, records: list[Any], window: Window) -> Any:
        values = [record[2] for record in records]
        records[0][2].append("spoilt")
        yield values

    def add(values: list[Any], record: Any) -> list[Any]:
        return [*values, *record[2]]

    def merge(first: list[Any], later: list[Any]) -> list[Any]:
        first += later
        return first

    for contents in [spoil, Aggregate(list, add, merge=merge, result=lambda values: values.append("spoilt"))]:
        driven = Driven(lambda contents=contents: window_chain(Sliding(10, 1), contents))  # type: ignore[misc]
        driven.give([("a", 0, ["x"]), ("a", 1, ["y"])], 11 * S)
        stage: Any = driven.chain
        [table] = stage._root.stage.tables()
        assert "spoilt" not in str(table.values)


def test_a_value_that_is_told_does_not_change_with_later_records() -> None:
    def add(values: list[int], record: Row) -> list[int]:
        values.append(record[2])
        return values

    driven = Driven(lambda: window_chain(Tumbling(10), Aggregate(list, add), lateness_s=5))
    first = driven.give([("a", 3, 1)], 10 * S)
    assert driven.give([("a", 3, 2), ("a", 3, 3)]) == [("a", [1, 2], 0.0, 10.0), ("a", [1, 2, 3], 0.0, 10.0)]
    assert first == [("a", [1], 0.0, 10.0)]


def test_a_checkpoint_holds_what_was_appended_not_the_whole_window() -> None:
    driven = Driven(lambda: window_chain(Tumbling(1000), values_of_window))
    driven.give([("a", at / 10, "x" * 50) for at in range(1000)])
    first = sum(map(len, parts_of(driven.chain)))
    driven.give([("a", 500, "x")])
    assert sum(map(len, parts_of(driven.chain))) < first / 50


def test_a_record_that_the_aggregate_refuses_is_a_dead_letter_and_in_no_window() -> None:
    strict: Aggregate[Any, Any] = Aggregate(int, lambda total, record: total + int(record[2]))
    with pytest.raises(OperatorFailed, match="operator 'w', key 'a'.*position 1 .*ValueError"):
        Driven(lambda: window_chain(Tumbling(10), strict)).give([("a", 1, "1"), ("a", 2, "x")])
    job = {"on_error": "dead-letter"}
    driven = Driven(lambda: window_chain(Tumbling(10), strict, job=job))
    outputs = driven.chain.deliver(0, listed([("a", 1, "1"), ("b", 2, "x"), ("a", 3, "2")]), 7, driven.services)
    [letter] = records_in(outputs)
    assert (letter["operator"], letter["key"], letter["position"]) == ("w", "b", 8)
    assert driven.finish() == [("a", 3, 0.0, 10.0)]
    failing = Driven(
        lambda: window_chain(Tumbling(10), Aggregate(int, lambda n, r: n, result=lambda n: 1 / n), job=job)
    )
    failing.give([("a", 1, 0)])
    [letter] = records_in([output for output in failing.chain.finish(failing.services) if output[0] == 1])
    assert letter["record"] == {"window": [0.0, 10.0]} and "ZeroDivisionError" in letter["error"]


def test_results_have_the_end_of_their_window_as_time() -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).watermarks("time", second).key_by(lambda r: r[0])
    counts = stream.window("w", Tumbling(1), Count()).key_by(lambda r: "all").window("sum", Tumbling(10), Sum(second))
    counts.sink("out", NoSink())
    rows = [("a", at / 10, 0) for at in range(205)]
    result = run(pipeline, {"in": rows}, checkpoint_every=3, batch=7)
    assert result["out"] == [("all", 100, 0.0, 10.0), ("all", 100, 10.0, 20.0), ("all", 5, 20.0, 30.0)]
    assert sum(result.determinant_bytes.get(kind, 0) for kind in ("clock", "timer", "window")) == 0


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda s: s.window("w", Tumbling(0), Count()), "size_s 0; use seconds, at least 0.001"),
        (
            lambda s: s.window("w", Sliding(10, 20), Count()),
            "every_s 20 .* exceeds its size_s 10, so some records would",
        ),
        (lambda s: s.window("w", Tumbling(10, clock="wall"), Count()), "clock 'wall'; use 'event' or 'processing'"),  # type: ignore[arg-type]
        (lambda s: s.window("w", Tumbling(10), 7), "window 'w' was given a int; pass a function"),
        (lambda s: s.window("w", Tumbling(10), Count), r"'w' was given the class Count; pass Count\(...\)"),
        (lambda s: s.window("w", Tumbling, Count()), "'w' was given the class Tumbling; pass Tumbling"),
        (lambda s: s.window("w", "10", Count()), "window 'w' was given a str; pass Tumbling"),
        (lambda s: s.window("w", Tumbling(10), Count(), lateness_s=-1), "lateness_s -1; use seconds, at least 0"),
        (
            lambda s: s.map("m", dict).key_by(second).window("w", Tumbling(10), Count()),
            r"'w' uses event time, but nothing says where .* 'm' have their time; put .timed\(fn\) after it",
        ),
        (lambda s: Sum(3), "of of Sum is 3, not a function; pass a function"),  # type: ignore[arg-type]
        (lambda s: Aggregate(0, max), "initial of an aggregate is 0, not a function; pass a function"),  # type: ignore[arg-type]
        (
            lambda s: s.window("w", Tumbling(9, clock="processing"), values_of_window, lateness_s=1),
            "'w' uses the wall clock",
        ),
    ],
)
def test_what_is_wrong_is_said_as_it_is_built(build: Callable[[Any], Any], message: str) -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).watermarks("time", second)
    with pytest.raises(PipelineError, match=message):
        build(stream).sink("out", NoSink())
        pipeline.check()


def test_without_watermarks_a_window_of_event_time_would_never_be_told() -> None:
    pipeline = Pipeline("test")
    pipeline.source("in", source()).timed(second).window("w", Tumbling(10), Count()).sink("out", NoSink())
    with pytest.raises(PipelineError, match="'in' has none; put .watermarks"):
        pipeline.check()


def test_times_are_whole_microseconds() -> None:
    driven = Driven(lambda: window_chain(Tumbling(0.1), Count()))
    base_s = 1_700_000_000
    driven.give([("a", base_s + at / 10, 0) for at in range(50)])
    rows = driven.finish()
    assert [row[1] for row in rows] == [1] * 50
    assert [row[2] for row in rows] == [(base_s * 10 + at) / 10 for at in range(50)]
