"""The window join against the nested loop over windows, whatever came when and wherever it was restored."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError
from operators import Pipeline, Session, Sliding, Tumbling
from operators.engine.plan import plan
from tests.unit.operators.join_scene import SECOND_NS, Task, key_of, planned_join, timed_source
from tests.unit.operators.scene import NoSink, config, source
from tests.unit.operators.test_joins import HOWS, steps


def joined(how: Any, assigner: Any) -> Task:
    return Task(planned_join(lambda a, b: a.window_join("w", b, assigner, how=how)), "w/0")


@given(steps, st.sampled_from(HOWS), st.sampled_from([(5, 5), (6, 2)]))
def test_it_is_the_nested_loop_over_windows(events: list[Any], how: str, window: tuple[int, int]) -> None:
    size, every = window
    task, mark, number, late = joined(how, Sliding(size, every)), -1, 0, 0
    panes: defaultdict[Any, Any] = defaultdict(lambda: ([], []))
    for what, more in events:
        if what == "mark":
            mark = max(mark, more)
            passed = max(task.marks, default=None)
            pairs = task.mark(more)
            for pair in pairs:
                latest = max(each[1] for each in pair if each is not None)
                assert passed is None or latest * SECOND_NS >= passed
        elif what == "restore":
            task.restore(more)
        else:
            batch = [(key, at_s, number + place) for place, (key, at_s) in enumerate(more)]
            number += len(batch)
            assert task.give(what, *batch) == []
            for each in batch:
                starts = [s for s in range(-size, 30) if s % every == 0 and s <= each[1] < s + size and s + size > mark]
                late += not starts
                for start in starts:
                    panes[each[0], start][what].append(each)
    task.finish()
    expected: list[Any] = []
    for lefts, rights in panes.values():
        expected += [(left, right) for left in lefts for right in rights]
        expected += [(left, None) for left in lefts if not rights and how in ("left", "outer")]
        expected += [(None, right) for right in rights if not lefts and how in ("right", "outer")]
    assert sorted(task.out, key=repr) == sorted(expected, key=repr)
    assert task.entry_count() == 0
    assert task.chain.counts().get("w", {}).get("late", 0) == late


def test_pairs_come_when_the_window_ends_in_order_of_arrival() -> None:
    task = joined("inner", Tumbling(10))
    task.give(1, ("k", 3, "x"), ("k", 9, "y"), ("j", 1, "z"))
    task.give(0, ("k", 8, "a"), ("k", 1, "b"), ("j", 2, "c"))
    assert task.mark(9.999999) == []
    names = [left[2] + right[2] for left, right in task.mark(10)]
    assert names == ["cz", "ax", "ay", "bx", "by"]


def test_late_records_go_aside() -> None:
    pipeline = Pipeline("test")
    a, b = timed_source(pipeline, "a"), timed_source(pipeline, "b")
    joined_stream = a.window_join("w", b, Tumbling(10))
    joined_stream.side("late").sink("late", NoSink())
    joined_stream.sink("out", NoSink())
    task = Task(plan(pipeline, config()), "w/0")
    task.mark(10)
    assert task.give(1, ("k", 9, "late"), ("k", 10, "in time")) == [("k", 9, "late")]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda a, b, c: a.window_join("w", b, Session(3)), "is given a Session; give Tumbling(size_s) or Sliding"),
        (lambda a, b, c: a.window_join("w", b, Tumbling(3, clock="processing")), "its windows use the wall clock"),
        (lambda a, b, c: a.window_join("w", c.key_by(key_of), Tumbling(3)), "counts event time, but 'c' has none"),
        (
            lambda a, b, c: a.window_join("w", c, Tumbling(3)),
            "its right side is not keyed; put .key_by(fn) before both",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(build: Any, message: str) -> None:
    pipeline = Pipeline("test")
    a, b, c = timed_source(pipeline, "a"), timed_source(pipeline, "b"), pipeline.source("c", source())
    a.join("used", b, within=(0, 0)).sink("all", NoSink())
    with pytest.raises(PipelineError, match=f"^[^\n]*{re.escape(message)}[^\n]*$"):
        build(a, b, c).sink("out", NoSink())
        plan(pipeline, config())
