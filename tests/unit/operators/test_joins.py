"""Joins by time and by window against nested loops: each pair once, no partner is missing that comes, nothing kept."""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError
from causal.records.values import encode
from operators import Count, Operator, Pipeline, Session, Sliding, Stream, Tumbling
from operators.engine.plan import plan
from operators.sinks import JsonLinesSink
from operators.stage.watermark_merge import IDLE_NS
from operators.testing import run
from tests.members import examples
from tests.unit.operators.join_scene import SECOND_NS, Task, key_of, planned_join, time_of, timed_source
from tests.unit.operators.scene import NoSink, config, source

BEFORE, AFTER = -2, 3
HOWS = ("inner", "left", "right", "outer")

record = st.tuples(st.sampled_from(["x", "y", 3]), st.integers(0, 20))
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([0, 1]), st.lists(record, min_size=1, max_size=5)),
        st.tuples(st.just("mark"), st.integers(0, 25)),
        st.tuples(st.just("restore"), st.booleans()),
    ),
    max_size=25,
)


def joined(how: Any, within: tuple[float, float] = (BEFORE, AFTER), **options: Any) -> Task:
    return Task(planned_join(lambda a, b: a.join("j", b, within=within, how=how, **options)), "j/0")


def nested_loop(left: list[Any], right: list[Any], how: str, within: tuple[float, float]) -> list[Any]:
    pairs = [(a, b) for a in left for b in right if a[0] == b[0] and within[0] <= b[1] - a[1] <= within[1]]
    if how in ("left", "outer"):
        pairs += [(a, None) for a in left if not any(pair[0] is a for pair in pairs)]
    if how in ("right", "outer"):
        pairs += [(None, b) for b in right if not any(pair[1] is b for pair in pairs)]
    return pairs


@given(steps, st.sampled_from(HOWS), st.sampled_from([(BEFORE, AFTER)] * 3 + [(0, 0), (2, 4), (-4, -2), (-3, 0)]))
def test_pairs_are_those_of_the_nested_loop_in_the_order_of_times_keys_and_arrival(
    events: list[tuple[Any, Any]], how: str, within: tuple[float, float]
) -> None:
    """The order is that of this model where `within` is (BEFORE, AFTER); nothing comes late for those behind it."""
    task, sides, matched, mark, late, number = joined(how, within), ([], []), set[int](), -1, 0, 0  # type: ignore[var-annotated]
    over_after, keeps = (AFTER, -BEFORE), (how in ("left", "outer"), how in ("right", "outer"))
    for what, more in events:
        expected, rows, passed = list[Any](), list[Any](), max(task.marks, default=None)
        if what == "mark":
            before, mark = mark, max(mark, more)
            for side in (0, 1):
                over = [r for r in sides[side] if before <= r[1] + over_after[side] < mark and r[2] not in matched]
                over.sort(key=lambda r: (r[1], encode(r[0]), r[2]))
                expected += [((r, None), (None, r))[side] for r in over if keeps[side]]
            rows = task.mark(more)
        elif what == "restore":
            task.restore(more)
        else:
            batch = [(key, at_s, number + place) for place, (key, at_s) in enumerate(more)]
            number += len(batch)
            for record in batch:
                if record[1] < mark:
                    late += 1
                    continue
                for other in sorted(sides[1 - what], key=lambda r: (r[1], r[2])):
                    apart = (other[1] - record[1]) if what == 0 else (record[1] - other[1])
                    if other[0] == record[0] and BEFORE <= apart <= AFTER:
                        matched.update((record[2], other[2]))
                        expected.append((record, other) if what == 0 else (other, record))
                sides[what].append(record)
            rows = task.give(what, *batch)
        assert rows == expected or within != (BEFORE, AFTER)
        assert passed is None or all(max(r[1] for r in row if r is not None) * SECOND_NS >= passed for row in rows)
        assert all(at_ns <= mark * SECOND_NS for at_ns in task.marks)
    task.finish()
    assert sorted(task.out, key=repr) == sorted(nested_loop(*sides, how, within), key=repr)
    assert task.entry_count() == 0
    assert task.chain.counts().get("j", {}).get("late", 0) == late


def window_joined(how: Any, assigner: Any) -> Task:
    return Task(planned_join(lambda a, b: a.window_join("w", b, assigner, how=how)), "w/0")


@given(steps, st.sampled_from(HOWS), st.sampled_from([(5, 5), (6, 2)]))
def test_it_is_the_nested_loop_over_windows(events: list[Any], how: str, window: tuple[int, int]) -> None:
    size, every = window
    task, mark, number, late = window_joined(how, Sliding(size, every)), -1, 0, 0
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
    task = window_joined("inner", Tumbling(10))
    task.give(1, ("k", 3, "x"), ("k", 9, "y"), ("j", 1, "z"))
    task.give(0, ("k", 8, "a"), ("k", 1, "b"), ("j", 2, "c"))
    assert task.mark(9.999999) == []
    names = [left[2] + right[2] for left, right in task.mark(10)]
    assert names == ["cz", "ax", "ay", "bx", "by"]


def test_nothing_is_kept_behind_the_watermark() -> None:
    task = joined("inner", (0, 10))
    for at_s in range(1000):
        task.give(at_s % 2, ("k", at_s, ""))
        task.mark(at_s)
        kept = task.chain.inspect("j", "k")
        assert len(kept.get("j:left", ())) <= 12 // 2 and len(kept.get("j:right", ())) <= 1


@pytest.mark.parametrize(
    "build", [lambda a, b: a.join("j", b, within=(0, 5)), lambda a, b: a.window_join("j", b, Tumbling(10))]
)
@pytest.mark.parametrize("side", [0, 1])
def test_late_records_are_counted_and_put_aside(build: Any, side: int) -> None:
    pipeline = Pipeline("test")
    joined_stream = build(timed_source(pipeline, "a"), timed_source(pipeline, "b"))
    joined_stream.side("late").sink("late", NoSink())
    joined_stream.sink("out", NoSink())
    task = Task(plan(pipeline, config()), "j/0")
    task.mark(50)
    assert task.give(side, ("k", 49, "late"), ("k", 50, "in time")) == [("k", 49, "late")]
    assert task.chain.counts() == {"j": {"late": 1}}


def test_a_function_makes_the_record_and_its_failure_is_a_dead_letter() -> None:
    def ratio(left: Any, right: Any) -> float:
        return float(left[2] / right[2])

    job_plan = planned_join(lambda a, b: a.join("j", b, within=(0, 0), fn=ratio), on_error="dead-letter")
    task = Task(job_plan, "j/0")
    task.give(1, ("k", 1, 0), ("k", 1, 2))
    rows = task.give(0, ("k", 1, 8))
    assert rows[0] == 4.0
    assert rows[1]["operator"] == "j" and "ZeroDivisionError" in rows[1]["error"] and rows[1]["position"] == 0


def test_what_it_gives_shares_nothing_with_what_it_keeps() -> None:
    job_plan = planned_join(lambda a, b: a.join("j", b, within=(0, 0)).map("spoil", spoil))
    task = Task(job_plan, "spoil/0")
    task.give(0, ["k", 1, "left"])
    assert [task.give(1, ["k", 1, name]) for name in ("one", "two")] == [["left spoilt one"], ["left spoilt two"]]


def spoil(pair: Any) -> str:
    pair[0][2] += " spoilt"
    return f"{pair[0][2]} {pair[1][2]}"


def test_the_time_of_a_pair_is_that_of_the_later_record() -> None:
    job_plan = planned_join(lambda a, b: a.join("j", b, within=(0, 5), how="outer").filter("f", lambda r: True))
    node = next(node for node in job_plan._groups[-1].root.edges if True).source
    assert node.time_of is not None
    assert node.time_of((("k", 3, ""), ("k", 5, ""))) == 5.0
    assert node.time_of((("k", 3, ""), None)) == 3.0


class Nothing(Operator):
    def process(self, record: Any, ctx: Any) -> None:
        return None


def unkeyed(pipeline: Pipeline) -> Stream[Any]:
    return pipeline.source("u", source()).watermarks("u-time", time_of)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p, a, b: a.join("j", b), "join 'j' needs within="),
        (lambda p, a, b: a.join("j", b, within=(60, 0)), "within (60, 0) is empty"),
        (lambda p, a, b: a.join("j", b, within=5), "use (before_s, after_s) in seconds"),
        (lambda p, a, b: a.join("j", b, within=(0, 1), how="full"), "use one of 'inner'"),
        (lambda p, a, b: a.join("j", b, within=(0, 1), fn=3), "pass a function"),
        (lambda p, a, b: a.join("j", 7, within=(0, 1)), "use a stream"),
        (lambda p, a, b: a.join("j", unkeyed(p), within=(0, 1)), "its left side is keyed, its right side is not keyed"),
        (lambda p, a, b: a.join("j", timed_source(Pipeline("other"), "c"), within=(0, 1)), "another pipeline"),
        (
            lambda p, a, b: (
                a.join("i", b, within=(0, 1))
                .key_by(key_of)
                .join("j", p.source("c", source()).key_by(key_of), within=(0, 1))
            ),
            "keeps records by event time, but 'c' has no event time; put .watermarks(name, time) before it",
        ),
        (lambda p, a, b: a.join("j", b.process("p", Nothing()).key_by(key_of), within=(0, 1)), "put .timed(fn)"),
        (lambda p, a, b: a.window_join("w", b, Session(3)), "was given a Session; pass Tumbling(size_s) or Sliding"),
        (lambda p, a, b: a.window_join("w", b, Tumbling(3, clock="processing")), "its windows use the wall clock"),
        (
            lambda p, a, b: a.window_join("w", p.source("c", source()).key_by(key_of), Tumbling(3)),
            "uses event time, but 'c' has no event time",
        ),
        (
            lambda p, a, b: a.window_join("w", unkeyed(p), Tumbling(3)),
            "its right side is not keyed; put .key_by(fn) before both",
        ),
    ],
)
def test_a_join_that_cannot_be_is_refused_in_one_line(build: Any, message: str) -> None:
    pipeline = Pipeline("test")
    a, b = timed_source(pipeline, "a"), timed_source(pipeline, "b")
    a.join("used", b, within=(0, 0)).sink("all", NoSink())
    with pytest.raises(PipelineError, match=f"(?s)^[^\n]*{re.escape(message)}[^\n]*$"):
        build(pipeline, a, b).sink("out", NoSink())
        plan(pipeline, config())


@pytest.mark.parametrize(
    "build",
    [
        lambda a, b: a.join("op", b, within=(0, 5), how="outer"),
        lambda a, b: a.window_join("op", b, Tumbling(5)),
        lambda a, b: a.join_table("op", b.table("t"), wait=True),
        lambda a, b: a.window_table("t", Tumbling(5), Count(), grace_s=1).suppress("op", after_s=3).revisions("r"),
    ],
)
def test_who_waits_for_idle_inputs_hears_of_them(build: Any) -> None:
    pipeline = Pipeline("test")
    a, b = timed_source(pipeline, "a"), timed_source(pipeline, "b")
    a.join("used", b, within=(0, 0)).sink("all", NoSink())
    build(a, b).sink("out", NoSink())
    job_plan = plan(pipeline, config())
    task = Task(job_plan, next(task.name for task in job_plan.topology.tasks if "op" in task.operators))
    named = job_plan.topology.named(task.name)
    assert named is not None
    inputs = range(len(job_plan.topology.inputs(named.index)))
    task.mark(20, inputs)
    task.idle(*inputs)
    assert task.marks[-1] == IDLE_NS and len(task.marks) == 2


def test_keys_of_a_kind_that_the_other_side_never_has_are_counted() -> None:
    task = joined("inner")
    task.give(0, (1, 0, "a"), (1.5, 0, "b"))
    task.give(1, ("1", 0, "c"), ("2", 0, "d"))
    task.restore(True)
    task.give(0, (2, 1, "e"))
    assert task.out == [] and task.chain.counts()["j"] == {"unlike_keys": 3}
    task.give(1, (True, 1, "f"))
    assert len(task.out) == 1 and task.chain.counts()["j"] == {"unlike_keys": 3}


# Functions that change their arguments.


def reading(left: Any, right: Any) -> Any:
    return {**(left or {}), **{f"r-{name}": value for name, value in (right or {}).items()}}


def changing(left: Any, right: Any) -> Any:
    record = copy.deepcopy(reading(left, right))
    for each in (left or {}, right or {}):
        each["n"] = -1
        each.get("in", []).append("changed")
    return record


JOINS: dict[str, Any] = {
    "join": lambda a, b, fn: a.join("op", b, (-9, 9), how="outer", fn=fn),
    "window_join": lambda a, b, fn: a.window_join("op", b, Sliding(10, 5), how="outer", fn=fn),
    "join_table": lambda a, b, fn: a.join_table("op", b.table("rows"), wait=True, how="left", fn=fn),
    "as of": lambda a, b, fn: a.join_table("op", b.table("rows"), as_of=True, how="left", fn=fn),
    "tables": lambda a, b, fn: a.table("lefts").join("op", b.table("rows"), how="outer", fn=fn).to_stream("rows-of"),
}


@pytest.mark.parametrize("kind", JOINS)
@examples(divided_by=2)
@given(times=st.lists(st.integers(0, 20), min_size=1, max_size=12), batch=st.sampled_from([1, 2, 50]))
def test_what_a_function_changes_is_changed_nowhere_else(kind: str, times: list[int], batch: int) -> None:
    inputs = {name: [{"k": at % 2, "at": at, "n": n, "in": []} for n, at in enumerate(times)] for name in "ab"}

    def rows(fn: Any) -> Any:
        pipeline = Pipeline("p")
        a, b = [
            pipeline.source(name, source()).watermarks(f"{name}-time", lambda r: r["at"], out_of_order_s=30)
            for name in "ab"
        ]
        keyed = [stream.key_by(lambda r: r["k"]) for stream in (a, b)]
        JOINS[kind](*keyed, fn).sink("out", JsonLinesSink("/nowhere"))
        return run(pipeline, inputs, batch=batch, seed=1)["out"]

    assert rows(changing) == rows(reading)
