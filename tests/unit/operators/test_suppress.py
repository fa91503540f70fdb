"""`suppress` folds revisions: one per window when it is closed, or one per key and time; the sum stays the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators import Count, Pipeline, Sum, Tumbling
from operators.engine.plan import Plan, plan
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.testing import At, every_crash, run
from tests.unit.operators.join_scene import IDLE_NS, SECOND_NS, Task, key_of, time_of
from tests.unit.operators.scene import NoSink, config, source
from tests.unit.operators.test_tables import folded, steps


def windows(grace_s: float, **how: Any) -> Plan:
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).timed(time_of).key_by(key_of)
    table = stream.window_table("t", Tumbling(5), Sum(lambda r: r[2]), grace_s=grace_s)
    table.suppress("s", **how).revisions("revisions").sink("out", NoSink())
    return plan(pipeline, config())


class Two:
    """The tasks of a windowed table and of what suppresses its revisions, one after the other."""

    def __init__(self, grace_s: float, **how: Any) -> None:
        job_plan = windows(grace_s, **how)
        self.above, self.below = Task(job_plan, "t/0"), Task(job_plan, "revisions/0")
        self.revisions: list[Any] = []

    def give(self, *records: Any) -> list[Any]:
        """Record for the table; what is not suppressed any more."""
        passed = len(self.above.marks)
        revisions = self.above.give(0, *records)
        self.revisions += revisions
        emitted = self.below.give(0, *revisions) if revisions else []
        for mark in self.above.marks[passed:]:
            emitted += self.below.mark(mark / SECOND_NS, [0])
        return emitted

    def restore(self, full: bool = False) -> None:
        """Both continue in another process."""
        self.above.restore(full)
        self.below.restore(full)


def test_one_record_per_window_when_it_is_closed() -> None:
    two = Two(10, until="closed")
    assert two.give(("p", 12, 1), ("p", 16, 1), ("p", 14, 1), ("p", 23, 1), ("p", 24.9, 1)) == []
    assert two.give(("p", 25, 1)) == [(("p", 10, 15), None, 2)]
    assert two.below.chain.counts() == {"s": {"held_back": 2}}
    assert two.below.finish() == [(("p", start, start + 5), None, n) for start, n in ((15, 1), (20, 2), (25, 1))]


@given(steps, st.sampled_from([{"until": "closed"}, {"after_s": 3}, {"until": "closed", "keys_max": 2}]), st.booleans())
def test_it_adds_up_to_the_same(drawn: list[Any], how: dict[str, Any], at_once: bool) -> None:
    two = Two(4, **how)
    for step in drawn:
        if isinstance(step, str):
            two.restore(step == "full")
        elif at_once:
            two.give(*step)
        else:
            for record in step:
                two.give(record)
        assert two.below.entry_count() <= how.get("keys_max", 100)
    two.above.finish()
    two.below.finish()
    assert folded(two.below.out) == folded(two.revisions)
    assert len(two.below.out) <= len(two.revisions) and two.below.entry_count() == 0
    if how == {"until": "closed"}:
        keys = [key for key, _, _ in two.below.out]
        assert len(keys) == len(set(keys)) and all(old is None for _, old, _ in two.below.out)


def test_what_folds_to_nothing_is_not_sent() -> None:
    two = Two(10, after_s=3)
    two.give(("p", 12, 1))
    assert [new for _, _, new in two.below.finish()] == [1]
    two = Two(10, after_s=3)
    two.below.give(0, (("p", 10, 15), 1, 2), (("p", 10, 15), 2, 1))
    assert two.below.finish() == [] and two.below.entry_count() == 0


def test_with_too_many_keys_the_one_that_is_due_first_goes() -> None:
    two = Two(100, until="closed", keys_max=2)
    assert two.give(("b", 22, 1), ("a", 22, 1)) == []
    assert two.give(("c", 27, 1)) == [(("a", 20, 25), None, 1)]
    assert two.give(("d", 12, 1)) == [(("d", 10, 15), None, 1)]


@pytest.mark.parametrize("first_s", [-5000, 5000], ids=["before 1970", "after 1970"])
def test_before_the_first_watermark_time_counts_from_it(first_s: int) -> None:
    two = Two(100, after_s=3)
    two.below.give(0, (("p", 10, 15), None, 1))
    two.below.give(0, (("q", 10, 15), None, 1))
    two.restore()
    two.below.give(0, (("p", 10, 15), 1, 2))
    assert two.below.mark(first_s, [0]) == []
    two.below.give(0, (("r", 10, 15), None, 1))
    assert two.below.mark(first_s + 2.999999, [0]) == []
    assert two.below.mark(first_s + 3, [0]) == [
        (("p", 10, 15), None, 2), (("q", 10, 15), None, 1), (("r", 10, 15), None, 1)
    ]  # fmt: skip
    assert two.below.entry_count() == 0


def test_the_watermark_waits_for_what_is_held() -> None:
    two = Two(0, after_s=3)
    two.give(("p", 12, 1))
    assert two.below.marks == [9 * SECOND_NS]


VIEWS = [("page", 12), ("page", 16), ("page", 14), ("page", 23), ("page", 12), ("page", 40)]


def figure_6(suppressed: bool) -> Pipeline:
    pipeline = Pipeline("figure-6")
    views = pipeline.source("views", GeneratedSource(lambda p, i: VIEWS[i], len(VIEWS)))
    table = views.timed(time_of).key_by(key_of).window_table("counts", Tumbling(5), Count(), grace_s=10)
    if suppressed:
        table = table.suppress("final", until="closed")
    table.revisions("revisions").sink("out", JsonLinesSink("/nowhere"))
    return pipeline


REVISED = [
    (("page", 10, 15), None, 1), (("page", 15, 20), None, 1), (("page", 10, 15), 1, 2), (("page", 20, 25), None, 1),
    (("page", 40, 45), None, 1),
]  # fmt: skip
FINAL = [(("page", start, start + 5), None, n) for start, n in ((10, 2), (15, 1), (20, 1), (40, 1))]


def crashes(suppressed: bool) -> Iterable[Any]:
    return [pytest.param(suppressed, crash, id=f"{suppressed}-{crash}") for crash in every_crash(figure_6(suppressed))]


@pytest.mark.parametrize(("suppressed", "crash"), [*crashes(False), *crashes(True)])
def test_figure_6_whatever_dies_when(suppressed: bool, crash: dict[str, int]) -> None:
    result = run(figure_6(suppressed), crash=crash, seed=5)
    assert result["out"] == (FINAL if suppressed else REVISED)
    assert result.recoveries == 1 and result.counts["counts"] == {"late": 1}


# By the wall clock.


def clocked(*records: Any, **how: Any) -> Task:
    """Return the task of `suppress` by the wall clock, which has received these revisions."""
    pipeline = Pipeline("test")
    table = pipeline.source("in", source()).watermarks("time", time_of).key_by(key_of).table("t")
    table.suppress("s", clock="processing", **{"after_s": 3, **how}).revisions("revisions").sink("out", NoSink())
    task = Task(plan(pipeline, config()), "revisions/0")
    task.services.clock_ns = 1000 * SECOND_NS - 1_000_000
    if records:
        assert task.give(0, *records) == []
    return task


@pytest.mark.parametrize("full", [False, True])
def test_by_the_wall_clock_a_timer_sends_what_the_first_reading_held(full: bool) -> None:
    task = clocked(("a", None, 1), ("b", None, 1), ("a", 1, 2))
    task.restore(full)
    task.services.clock_ns = 1002 * SECOND_NS
    assert task.give(0, ("b", 1, None), ("c", None, 1)) == []
    assert [kind for kind, _ in task.services.log] == ["clock", "clock"], "one reading per batch"
    assert task.give(0, ("c", 1, 3)) == [] and len(task.services.log) == 2, "nothing begins to wait"
    assert task.chain.next_timer_ns() == 1003 * SECOND_NS
    assert task.fire(1003) == [("a", None, 2)]
    task.restore(full)
    assert task.chain.next_timer_ns() == 1005 * SECOND_NS + 1_000_000
    assert task.finish() == [("c", None, 3)] and task.entry_count() == 0
    assert task.chain.next_timer_ns() is None


@pytest.mark.parametrize("restores", [False, True])
def test_by_the_wall_clock_the_watermark_waits_for_what_arrived_before_it(restores: bool) -> None:
    task = clocked()
    for at_s, mark_s, key in ((1000, 10, "a"), (1001, 20, "b"), (1002, 30, "c")):
        task.services.clock_ns = at_s * SECOND_NS - 1_000_000
        task.give(0, (key, None, 1))
        task.mark(mark_s, [0])
        if restores:
            task.restore()
    assert task.marks == [], "the first key arrived before any watermark"
    for at_s, passed in ((1003, [10]), (1004, [10, 20]), (1005, [10, 20, 30])):
        assert len(task.fire(at_s)) == 1
        assert task.marks == [mark_s * SECOND_NS for mark_s in passed]
    task.mark(40, [0])
    assert task.marks[-1] == 40 * SECOND_NS, "nothing waits"


def test_by_the_wall_clock_an_idle_input_is_idle_when_nothing_waits() -> None:
    task = clocked()
    task.idle(0)
    assert task.marks == [IDLE_NS]
    task = clocked(("a", None, 1))
    task.mark(10, [0])
    task.idle(0)
    task.restore()
    assert task.marks == []
    task.fire(1003)
    assert task.marks == [10 * SECOND_NS, IDLE_NS]
    task = clocked(("a", None, 1))
    task.idle(0)
    assert task.give(0, ("a", 1, 2)) == []
    task.fire(1003)
    assert task.marks == [], "a record has arrived since then"


def test_by_the_wall_clock_with_too_many_keys_the_first_one_goes() -> None:
    task = clocked(("b", None, 1), keys_max=2)
    task.mark(10, [0])
    assert task.give(0, ("a", None, 1)) == []
    assert task.give(0, ("c", None, 1)) == [("b", None, 1)]
    task.mark(20, [0])
    assert task.marks == [10 * SECOND_NS]


@given(st.lists(st.sampled_from(["a", "b", "restore", "full", "fire", "mark", "later", "earlier"])))
def test_by_the_wall_clock_nothing_is_late_and_it_adds_up_to_the_same(drawn: list[str]) -> None:
    task, arrived, mark_s = clocked(), list[Any](), 0
    waiting: dict[str, int] = {}
    for number, step in enumerate(drawn):
        if step in ("a", "b"):
            arrived.append((step, folded(arrived).get(step), number))
            waiting.setdefault(step, mark_s)
            task.give(0, arrived[-1])
        elif step in ("restore", "full"):
            task.restore(step == "full")
        elif step == "mark":
            mark_s += 1
            task.mark(mark_s, [0])
        elif step == "fire":
            due_ns = task.chain.next_timer_ns()
            assert (due_ns is None) == (not waiting)
            for key, _, _ in [] if due_ns is None else task.fire(due_ns / SECOND_NS):
                del waiting[key]
        else:
            task.services.clock_ns += SECOND_NS * (1 if step == "later" else -1)
        passed_s = min([mark_s, *waiting.values()])
        assert task.marks[-1:] == [passed_s * SECOND_NS] * (passed_s > 0)
    task.finish()
    assert folded(task.out) == folded(arrived) and task.entry_count() == 0


def by_the_clock() -> Pipeline:
    pipeline = Pipeline("clocked")
    views = pipeline.source("views", GeneratedSource(lambda p, i: None, 0)).key_by(lambda view: view)
    table = views.aggregate_table("counts", Count()).suppress("less", after_s=5, clock="processing")
    table.revisions("revisions").sink("out", JsonLinesSink("/nowhere"))
    return pipeline


VIEWED = {"views": [At(at_s, view) for at_s, view in ((10, "a"), (12, "b"), (13, "a"), (16, "a"), (30, "b"))]}


@pytest.mark.parametrize("crash", every_crash(by_the_clock(), VIEWED), ids=str)
def test_by_the_wall_clock_it_adds_up_to_the_same_whatever_dies_when(crash: dict[str, int]) -> None:
    calm = run(by_the_clock(), VIEWED, seed=5)["out"]
    assert calm == [("a", None, 2), ("b", None, 1), ("a", 2, 3), ("b", 1, 2)]
    result = run(by_the_clock(), VIEWED, crash=crash, seed=5)
    assert folded(result["out"]) == folded(calm), "a timer that is due during the recovery fires after it"
    assert result.recoveries == 1
