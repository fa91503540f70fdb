"""Tables: Figure 6 of Kafka Streams step by step; revisions add up to what a batch gives, whatever came when."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError
from operators import Aggregate, Count, CountWindow, Max, Mean, Min, Pipeline, Reduce, Session, Sliding, Sum, Tumbling
from operators.engine.plan import Plan, plan
from tests.unit.operators.join_scene import SECOND_NS, Task, key_of, time_of
from tests.unit.operators.scene import NoSink, config, source

Rows = dict[Any, Any]


def planned_table(build: Callable[[Any], Any], watermarks: bool = False, **options: Any) -> Plan:
    """Return a keyed stream of (key, seconds, value) that `build` makes a table of; its revisions go to sink `out`."""
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source())
    timed = stream.watermarks("time", time_of) if watermarks else stream.timed(time_of)
    build(timed.key_by(key_of)).revisions("revisions").sink("out", NoSink())
    return plan(pipeline, config(**options))


def windowed(assigner: Any, aggregate: Any, grace_s: float = 0.0, watermarks: bool = False) -> Task:
    job_plan = planned_table(lambda s: s.window_table("t", assigner, aggregate, grace_s=grace_s), watermarks)
    return Task(job_plan, "revisions/0")


def folded(revisions: Iterable[Any], rows: Rows | None = None) -> Rows:
    """Return the rows that revisions add up to; fails where one does not begin where the one before it ended."""
    rows = {} if rows is None else rows
    for key, old, new in revisions:
        assert rows.get(key) == old != new, (key, old, new)
        if new is None:
            del rows[key]
        else:
            rows[key] = new
    return rows


# Figure 6.

VIEWS = [("page", 12, ""), ("page", 16, ""), ("page", 14, ""), ("page", 23, ""), ("page", 12, "")]
REVISED: list[list[Any]] = [
    [(("page", 10, 15), None, 1)],
    [(("page", 15, 20), None, 1)],
    [(("page", 10, 15), 1, 2)],
    [(("page", 20, 25), None, 1)],
    [],
]


@pytest.mark.parametrize("restores", [False, True])
def test_figure_6_step_by_step(restores: bool) -> None:
    task = windowed(Tumbling(5), Count(), grace_s=10)
    for view, revised in zip(VIEWS, REVISED, strict=True):
        assert task.give(0, view) == revised
        if restores:
            task.restore()
    assert task.chain.counts() == {"t": {"late": 1}}
    assert [mark // SECOND_NS for mark in task.marks] == [2, 6, 13]


def test_records_too_late_go_aside_as_they_came() -> None:
    pipeline = Pipeline("test")
    table = pipeline.source("in", source()).timed(time_of).key_by(key_of).window_table("t", Tumbling(5), Count())
    table.side("late").sink("late", NoSink())
    table.revisions("revisions").sink("out", NoSink())
    task = Task(plan(pipeline, config()), "revisions/0")
    rows = task.give(0, ("k", 20, ""), ("k", 14, "late"))
    assert sorted(rows, key=repr) == sorted([(("k", 20, 25), None, 1), ("k", 14, "late")], key=repr)


# Any order, any batches, any restore.

values = st.integers(-3, 3)
views = st.tuples(st.sampled_from(["a", "b", 7]), st.integers(0, 30), values)
steps = st.lists(st.one_of(st.lists(views, min_size=1, max_size=6), st.sampled_from(["restore", "full"])), max_size=15)

AGGREGATES: list[tuple[Callable[[], Aggregate[Any, Any]], Callable[[list[int]], Any]]] = [
    (Count, len),
    (lambda: Sum(lambda r: r[2]), sum),
    (lambda: Min(lambda r: r[2]), min),
    (lambda: Max(lambda r: r[2]), max),
    (lambda: Mean(lambda r: r[2]), lambda values: sum(values) / len(values)),
    (lambda: Aggregate(list, appended), list),
    (lambda: Reduce(lambda a, b: (*a[:2], a[2] + b[2])), lambda values: sum(values)),
]


def appended(values: list[int], record: Any) -> list[int]:
    values.append(record[2])
    return values


@given(steps, st.integers(0, len(AGGREGATES) - 2), st.sampled_from([0, 4, 100]), st.sampled_from([(6, 6), (6, 2)]))
def test_revisions_of_windows_add_up_to_the_batch(
    drawn: list[Any], which: int, grace_s: int, window: tuple[int, int]
) -> None:
    make, batch = AGGREGATES[which]
    task = windowed(Sliding(*window), make(), grace_s)
    expected: defaultdict[Any, list[int]] = defaultdict(list)
    stream_s, late = -1, 0
    for step in drawn:
        if isinstance(step, str):
            task.restore(step == "full")
            continue
        task.give(0, *step)
        for key, at_s, value in step:
            stream_s = max(stream_s, at_s)
            starts = [s for s in range(-window[0], 40) if s % window[1] == 0 and s <= at_s < s + window[0]]
            starts = [s for s in starts if s + window[0] > stream_s or at_s >= stream_s - grace_s]
            late += not starts
            for start in starts:
                expected[key, start, start + window[0]].append(value)
    assert folded(task.out) == {key: batch(contents) for key, contents in expected.items()}
    assert task.chain.counts().get("t", {}).get("late", 0) == late
    assert task.marks == sorted(task.marks)
    assert stream_s < 0 or task.marks[-1] == (stream_s - grace_s) * SECOND_NS
    task.finish()
    assert task.entry_count() == 0


@given(steps)
def test_windows_that_nothing_can_revise_are_forgotten(drawn: list[Any]) -> None:
    task = windowed(Tumbling(5), Count(), grace_s=3)
    stream_s = 0
    for step in drawn:
        if isinstance(step, str):
            task.restore(step == "full")
        else:
            task.give(0, *step)
            stream_s = max(stream_s, *(at_s for _, at_s, _ in step))
            assert task.entry_count() <= 3 * (3 // 5 + 2) and task.marks[-1] == (stream_s - 3) * SECOND_NS


def test_a_value_on_which_a_function_raises_is_no_row_and_one_dead_letter() -> None:
    def build(stream: Any) -> Any:
        return stream.aggregate_table("n", Count()).map_values("inverse", lambda key, n: 1 / (n - 2))

    task = Task(planned_table(build, on_error="dead-letter"), "revisions/0")
    rows = task.give(0, *[("a", 0, "")] * 3)
    letters = [each for each in rows if isinstance(each, dict)]
    assert [each for each in rows if not isinstance(each, dict)] == [
        ("a", None, -1.0),
        ("a", -1.0, None),
        ("a", None, 1.0),
    ]
    assert [(letter["operator"], letter["record"]) for letter in letters] == [("inverse", 2)]


def test_a_table_becomes_a_stream_again() -> None:
    pipeline = Pipeline("test")
    table = pipeline.source("in", source()).key_by(key_of).aggregate_table("n", Count())
    table.to_stream("rows", lambda key, value: {"key": key, "value": value}).sink("out", NoSink())
    table.to_stream("pairs").sink("all", NoSink())
    task = Task(plan(pipeline, config()), "pairs/0")
    assert task.give(0, ("a", 0, "")) == [{"key": "a", "value": 1}, ("a", 1)]


# Two tables.


# What cannot be.


def untimed(pipeline: Pipeline) -> Any:
    return pipeline.source("u", source()).key_by(key_of)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s, p: s.window_table("t", CountWindow(5), Count()), "pass Tumbling(size_s), Sliding or Session"),
        (
            lambda s, p: s.window_table("t", Session(5), Aggregate(int, max)),
            "aggregates without merge; use Aggregate(...",
        ),
        (lambda s, p: s.window_table("t", Tumbling(5, clock="processing"), Count()), "its windows use the wall clock"),
        (lambda s, p: s.window_table("t", Tumbling(5), len), "use Count(), Sum(of) or another Aggregate"),
        (lambda s, p: s.window_table("t", Tumbling(5), Count(), grace_s=-1), "has grace_s -1; use seconds"),
        (lambda s, p: s.aggregate_table("t", Count), "was given the class Count"),
        (
            lambda s, p: s.table("t").group_by("g", lambda k, v: v).aggregate("n", Aggregate(int, lambda a, r: a)),
            "aggregate 'n' reads a table, so it must be able to retract; use Aggregate(…, subtract=fn)",
        ),
        (
            lambda s, p: s.table("t").sink("out", NoSink()),
            "NoSink writes one row per record; use a sink with upsert=True, or put .revisions(name)",
        ),
        (lambda s, p: s.table("t").join("j", s), "join 'j' of a table was given a KeyedStream; pass a table"),
        (lambda s, p: s.table("t").join("j", untimed(Pipeline("q")).table("x")), "a table of another pipeline"),
        (lambda s, p: s.table("t").join("j", untimed(p).table("x"), how="all"), "use one of 'inner'"),
        (lambda s, p: s.table("t").filter("f", 3), "filter 'f' was given a int; pass a function"),
        (lambda s, p: untimed(p).window_table("t", Tumbling(5), Count()), "put .timed(fn) or .watermarks(name, time)"),
        (lambda s, p: s.table("t").suppress("s"), 'needs either until="closed" or after_s='),
        (lambda s, p: s.table("t").suppress("s", until="closed"), "waits for windows to close, but 't' has none"),
        (lambda s, p: s.table("t").suppress("s", until="full"), "has until 'full'"),
        (lambda s, p: s.table("t").suppress("s", after_s=0), "has after_s 0; use seconds"),
        (lambda s, p: s.table("t").suppress("s", after_s=1, keys_max=0), "has keys_max 0; use a whole number from 1"),
        (lambda s, p: s.table("t").suppress("s", after_s=1), "uses event time, but 't' has none"),
        (
            lambda s, p: s.table("t").suppress("s", after_s=1, clock="wall"),
            "has clock 'wall'; use 'event' or 'processing'",
        ),
        (
            lambda s, p: s.window_table("t", Tumbling(5), Count()).suppress("s", until="closed", clock="processing"),
            "waits for windows of event time to close; use after_s=, or leave out clock",
        ),
    ],
)
def test_a_table_that_cannot_be_is_refused_in_one_line(build: Any, message: str) -> None:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).timed(time_of)
    stream.sink("all", NoSink())
    with pytest.raises(PipelineError, match=f"^[^\n]*{re.escape(message)}[^\n]*$"):
        build(stream.key_by(key_of), pipeline).revisions("revisions").sink("out", NoSink())
        plan(pipeline, config())
