"""Tumbling and sliding windows of event time, against a plain model: any order within the bound, any cut, restores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import OperatorFailed, PipelineError
from operators import Aggregate, Count, Max, Mean, Min, Pipeline, Reduce, Sliding, Sum, Tumbling, Window
from operators.kinds.windows.assigners import Assigner
from operators.testing import every_crash, run
from tests.members import examples
from tests.unit.operators.scene import NoSink, Services, listed, parts_of, records_in, source
from tests.unit.operators.window_scene import Driven, Row, S, drive, second, third, window_chain

BOUND_MS = 700


def in_order(draw: Callable[[st.SearchStrategy[Any]], Any]) -> list[Row]:
    """Record no further behind the largest time than the bound."""
    rows: list[Row] = []
    now_ms = 0
    for value, (key, step, back) in enumerate(
        draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 900), st.integers(0, BOUND_MS)), max_size=25))
    ):
        now_ms += step
        rows.append((key, max(0, now_ms - back) / 1000, value))
    return rows


@st.composite
def runs(draw: Any) -> tuple[list[list[Row]], list[int]]:
    """Record cut into batches, and what is done after each."""
    rows, batches = in_order(draw), list[list[Row]]()
    while rows:
        size = draw(st.integers(1, 6))
        batches.append(rows[:size])
        rows = rows[size:]
    return batches, draw(st.lists(st.integers(0, 2), max_size=5))


def expected(batches: Sequence[Sequence[Row]], size_ms: int, every_ms: int, offset_ms: int) -> Counter[Any]:
    """Return the values of each window that has any, by trying every window."""
    windows: dict[Any, list[Any]] = {}
    for key, at_s, value in [row for batch in batches for row in batch]:
        at_ms = round(at_s * 1000)
        for start in range(-2 * size_ms + offset_ms % every_ms, at_ms + 1, every_ms):
            if (start - offset_ms) % every_ms:
                start += every_ms - (start - offset_ms) % every_ms
            if start <= at_ms < start + size_ms:
                windows.setdefault((key, start / 1000, (start + size_ms) / 1000), []).append(value)
    return Counter((key, tuple(sorted(values)), start, end) for (key, start, end), values in windows.items())


def values_of_window(key: Any, records: list[Any], window: Window) -> Any:
    yield (key, tuple(sorted(record[2] for record in records)), window.start, window.end)


def collected() -> Aggregate[Any, Any]:
    def add(values: list[int], record: Row) -> list[int]:
        values.append(record[2])
        return values

    return Aggregate(list, add, result=lambda values: tuple(sorted(values)))


def merged() -> Aggregate[Any, Any]:
    plain = collected()
    return Aggregate(plain.initial, plain.add, plain.result, merge=lambda first, later: first + later)


@pytest.mark.parametrize(
    "size_ms, every_ms, offset_ms",
    [(1000, 1000, 0), (1000, 1000, 250), (1000, 300, 100), (1000, 250, 100), (900, 110, 30)],
)
@pytest.mark.parametrize(
    "contents", [collected, merged, lambda: values_of_window], ids=["plain", "merging", "function"]
)
@examples(divided_by=2)
@given(drawn=runs())
def test_every_record_is_in_the_windows_of_the_model_and_each_is_emitted_once(
    size_ms: int, every_ms: int, offset_ms: int, contents: Callable[[], Any], drawn: Any
) -> None:
    assigner: Assigner = Sliding(size_ms / 1000, every_ms / 1000, offset_ms / 1000)
    if every_ms == size_ms:
        assigner = Tumbling(size_ms / 1000, offset_ms / 1000)
    batches, acts = drawn
    driven = drive(lambda: window_chain(assigner, contents()), batches, BOUND_MS, acts)
    rows = [tuple(row) for row in driven.out]
    assert Counter((k, tuple(v), s, e) for k, v, s, e in rows) == expected(batches, size_ms, every_ms, offset_ms)
    assert [row[3] for row in rows] == sorted(row[3] for row in rows), "by their ends"
    assert driven.chain.counts() == {}
    assert parts_of(driven.chain, full=True)[1:] == [], "nothing is left"


@pytest.mark.parametrize("every_ms", [1000 // 3, 250, 200, 100])
@given(drawn=runs(), bound_ms=st.integers(0, BOUND_MS), lateness_ms=st.sampled_from([0, 300, 2000]))
def test_slices_give_the_rows_of_panes_in_their_order(
    every_ms: int, drawn: Any, bound_ms: int, lateness_ms: int
) -> None:
    size_ms, (batches, acts) = 1000 // every_ms * every_ms, drawn
    assigner = Sliding(size_ms / 1000, every_ms / 1000)

    def driven(contents: Callable[[], Any]) -> Driven:
        make = partial(window_chain, assigner, contents(), lateness_s=lateness_ms / 1000)
        return drive(make, batches, bound_ms, acts)

    of_panes, of_slices = driven(collected), driven(merged)
    assert [(k, sorted(v), s, e) for k, v, s, e in of_slices.out] == [
        (k, sorted(v), s, e) for k, v, s, e in of_panes.out
    ]
    assert of_slices.chain.counts() == of_panes.chain.counts()


def test_a_checkpoint_with_an_accumulator_per_window_is_refused_in_one_line() -> None:
    before = window_chain(Sliding(1, 0.25), collected())
    before.deliver(0, listed([("a", 0.5, 1)]), 0, Services())
    now = window_chain(Sliding(1, 0.25), merged())
    with pytest.raises(PipelineError, match="^window 'w' was .* of Aggregate when .* is .* of Aggregate in slices now"):
        now.restore(parts_of(before, full=True))


def test_a_window_is_told_when_the_mark_reaches_its_end_in_key_order() -> None:
    driven = Driven(lambda: window_chain(Tumbling(10), Count()))
    assert driven.give([("b", 1, 0), ("a", 9, 0), ("c", 11, 0), ("b", 2, 0)], 9 * S) == []
    assert driven.give([], 10 * S) == [("a", 1, 0.0, 10.0), ("b", 2, 0.0, 10.0)]
    assert driven.give([], 10 * S) == []
    assert driven.finish() == [("c", 1, 10.0, 20.0)]


def test_the_ready_aggregates() -> None:
    rows = [("a", at, value) for at, value in enumerate([3, 1, 2])]
    for aggregate, value in [
        (Count(), 3), (Sum(third), 6), (Mean(third), 2.0), (Min(third), 1), (Max(third), 3),
        (Reduce(lambda first, record: (first[0], first[1], first[2] + record[2])), ("a", 0, 6)),
    ]:  # fmt: skip
        driven = Driven(lambda aggregate=aggregate: window_chain(Tumbling(10), aggregate))  # type: ignore[misc]
        driven.give(rows)
        assert driven.finish() == [("a", value, 0.0, 10.0)], type(aggregate)


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


def test_late_records_are_counted_and_read_from_the_side() -> None:
    driven = Driven(lambda: window_chain(Tumbling(10), Count(), late=True))
    driven.give([("a", 3, 0)], 10 * S)
    assert driven.give([("a", 9.5, 1), ("a", 10, 2), ("b", 4, 3)]) == []
    assert driven.late == [("a", 9.5, 1), ("b", 4, 3)]
    assert driven.chain.counts() == {"w": {"late": 2}}
    driven.restore(lambda: window_chain(Tumbling(10), Count(), late=True))
    driven.give([("a", 9, 4)])
    assert driven.chain.counts() == {"w": {"late": 3}} and driven.late[-1] == ("a", 9, 4)
    assert driven.finish() == [("a", 1, 10.0, 20.0)]


def test_a_record_is_late_only_when_all_its_windows_are_closed() -> None:
    driven = Driven(lambda: window_chain(Sliding(10, 5), Count()))
    driven.give([], 12 * S)
    driven.give([("a", 8, 0), ("a", 4, 1)])
    assert driven.chain.counts() == {"w": {"late": 1}}
    assert driven.finish() == [("a", 1, 5.0, 15.0)]


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


@pytest.mark.parametrize("contents", [collected, merged, lambda: values_of_window], ids=["panes", "slices", "function"])
def test_sliding_windows_within_the_lateness(contents: Callable[[], Any]) -> None:
    """Windows of 10 s each second; the last row of a window is right, and only those that have ended are emitted."""

    def make() -> Any:
        return window_chain(Sliding(10, 1), contents(), lateness_s=4, late=True)

    driven = Driven(make)
    driven.give([("a", 3, 1), ("b", 8, 2)], 12 * S)
    assert [row[3] for row in driven.out if row[0] == "a"] == [*range(4, 13)]
    driven.restore(make)
    rows = driven.give([("a", 3, 3), ("a", 0, 4), ("a", -4, 5)])
    first = [((1, 3), 9), ((1, 3), 10), ((1, 3), 11), ((1, 3), 12)]
    assert [(tuple(row[1]), row[3]) for row in rows] == [*first, ((1, 3, 4), 9), ((1, 3, 4), 10)]
    assert driven.late == [("a", -4, 5)] and driven.chain.counts() == {"w": {"late": 1}}
    driven.give([("b", 9, 6)], 13 * S)
    assert driven.out[-2:] == [("a", (1, 3), 3.0, 13.0), ("b", (2, 6), 3.0, 13.0)]
    driven.give([], 23 * S)
    assert driven.out[-1] == ("b", (6,), 9.0, 19.0)
    assert parts_of(driven.chain, full=True)[1:] == [], "nothing is left"


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


def test_a_pane_that_changes_behind_the_barrier_is_as_it_was_in_the_snapshot() -> None:
    def make() -> Any:
        return window_chain(Tumbling(10), collected())

    driven, again = Driven(make), make()
    driven.give([("a", 1, 1), ("b", 1, 2)])
    job = driven.chain.snapshot(False)
    driven.give([("a", 2, 3), ("c", 1, 4)], 10 * S)
    while not job.step(1):
        pass
    again.restore(job.parts())
    assert records_in(again.finish(driven.services)) == [("a", (1,), 0.0, 10.0), ("b", (2,), 0.0, 10.0)]


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


def _job() -> Pipeline:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).watermarks("time", second, out_of_order_s=1).key_by(lambda r: r[0])
    stream.window("w", Sliding(2, 1), Sum(third), lateness_s=1).sink("out", NoSink())
    pipeline.stream("w").side("late").sink("late", NoSink())
    return pipeline


INPUTS = {
    "in": [(key, at, 1) for key, at in zip("abababaabbaab", (1, 1, 3, 2, 2, 4, 6, 3, 5, 9, 1, 8, 9), strict=True)]
}


@pytest.mark.parametrize("crash", every_crash(_job(), INPUTS, seed=3, checkpoint_every=4), ids=str)
def test_a_crash_behind_any_record_changes_nothing(crash: dict[str, int]) -> None:
    whole = run(_job(), INPUTS, seed=3, checkpoint_every=4)
    result = run(_job(), INPUTS, seed=3, checkpoint_every=4, crash=crash)
    assert result.recoveries == 1
    assert result.counts == whole.counts
    assert result.rows == whole.rows and whole["late"]


def test_ordered_windows_are_the_same_in_every_run() -> None:
    def emit(key: Any, records: list[Any], window: Window) -> Any:
        yield (key, [record[2] for record in records], window.end)

    def job() -> Pipeline:
        pipeline = Pipeline("test")
        stream = pipeline.source("in", source(2)).watermarks("time", second, out_of_order_s=2).key_by(lambda r: r[0])
        stream.window("w", Tumbling(4), emit, delivery="ordered").sink("out", NoSink())
        return pipeline

    inputs = {"in": [[("a", at, at) for at in (2, 0, 4, 6, 9)], [("a", at, at) for at in (1, 3, 5, 8, 7)]]}
    for seed in range(4):
        for crash in ({}, {"w/0": 4}, {"w/0": 9}):
            rows = run(job(), inputs, seed=seed, crash=crash)["out"]
            assert rows == [("a", [0, 1, 2, 3], 4.0), ("a", [4, 5, 6, 7], 8.0), ("a", [8, 9], 12.0)]


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda s: s.window("w", Tumbling(0), Count()), "size_s 0; give seconds, at least 0.001"),
        (lambda s: s.window("w", Sliding(10, 20), Count()), "every_s 20 .* larger than its size_s 10; records would"),
        (lambda s: s.window("w", Tumbling(10, clock="wall"), Count()), "clock 'wall'; give 'event' or 'processing'"),  # type: ignore[arg-type]
        (lambda s: s.window("w", Tumbling(10), 7), "window 'w' is given a int; give a function"),
        (lambda s: s.window("w", Tumbling(10), Count), r"'w' is given the class Count; give Count\(...\)"),
        (lambda s: s.window("w", Tumbling, Count()), "'w' is given the class Tumbling; give Tumbling"),
        (lambda s: s.window("w", "10", Count()), "window 'w' is given a str; give Tumbling"),
        (lambda s: s.window("w", Tumbling(10), Count(), lateness_s=-1), "lateness_s -1; give seconds, at least 0"),
        (
            lambda s: s.map("m", dict).key_by(second).window("w", Tumbling(10), Count()),
            r"'w' counts event time, but it is not known where .* 'm' emits; put .timed\(fn\) after it",
        ),
        (lambda s: Sum(3), "of of Sum is 3; give a function"),  # type: ignore[arg-type]
        (lambda s: Aggregate(0, max), "initial of an aggregate is 0; give a function"),  # type: ignore[arg-type]
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


def test_without_key_by_there_is_one_window_per_task() -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).watermarks("time", second)
    stream.window("w", Tumbling(10), Count()).sink("out", NoSink())
    assert run(pipeline, {"in": [("a", 1, 0), ("b", 2, 0)]})["out"] == [(None, 2, 0.0, 10.0)]


def test_times_are_whole_microseconds() -> None:
    driven = Driven(lambda: window_chain(Tumbling(0.1), Count()))
    base_s = 1_700_000_000
    driven.give([("a", base_s + at / 10, 0) for at in range(50)])
    rows = driven.finish()
    assert [row[1] for row in rows] == [1] * 50
    assert [row[2] for row in rows] == [(base_s * 10 + at) / 10 for at in range(50)]
