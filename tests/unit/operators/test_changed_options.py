"""Changes of options at a savepoint that the matrix of `tests/properties/test_upgrades.py` leaves open, by example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from causal.errors import PipelineError
from causal.records.batch import WATERMARK, watermark
from operators import Pipeline, WatermarkGenerator
from operators.engine.plan import Plan, plan
from operators.kinds.windows.aggregates import Count
from operators.kinds.windows.assigners import Global, Session, Sliding, Tumbling
from operators.kinds.windows.triggers import every, every_s
from tests.unit.operators.scene import NoSink, Services, config, listed, parts_of, records_chunk, records_in, source
from tests.unit.operators.test_rescaling import GROUPS, rescaled, saved

S = 1_000_000_000
Build = Callable[[Any], Any]


def time_of(record: Any) -> Any:
    return record[1]


def key_of(record: Any) -> Any:
    return record[0]


def whole(key: Any, records: list[Any], window: Any) -> list[Any]:
    return [(key, len(records))]


class Rising(WatermarkGenerator):
    """The largest time."""

    def on_batch(self, times_ns: Sequence[int]) -> int | None:
        self.state["n"] = max(times_ns)
        return max(times_ns)


class Falling(Rising):
    """Another."""


class Days:
    """An assigner of a user's own, with a parameter."""

    clock: Any = "event"

    def __init__(self, days: int) -> None:
        self.days = days

    def panes(self, times_ns: Sequence[int]) -> list[Sequence[int]]:
        size_ns = self.days * 86_400 * S
        return [(time_ns // size_ns * size_ns,) for time_ns in times_ns]

    def end_ns(self, start_ns: int) -> int:
        return start_ns + self.days * 86_400 * S


def built(build: Build) -> Plan:
    pipeline = Pipeline("test")
    build(pipeline.source("in", source())).sink("out", NoSink())
    return plan(pipeline, config(key_groups=GROUPS))


def timed(build: Build, **options: Any) -> Build:
    return lambda stream: build(stream.watermarks("time", time_of, **options).key_by(key_of))


def marked(**options: Any) -> Build:
    return timed(lambda stream: stream.count("c"), **options)


def windowed(assigner: Any, contents: Any = None, **options: Any) -> Build:
    return timed(lambda stream: stream.window("op", assigner, contents or Count(), **options))


def suppressed(**options: Any) -> Build:
    def build(stream: Any) -> Any:
        rows = stream.window_table("rows", Tumbling(10), Count(), grace_s=100)
        return rows.suppress("op", parallelism=1, **options).revisions("r")

    return timed(build)


def looked_up(**options: Any) -> Build:
    return timed(lambda stream: stream.join_table("op", stream.table("rows"), **options))


REFUSALS = {
    "the time of a table that is looked up": (looked_up(), looked_up(as_of=True)),
    "a trigger and slices": (windowed(Sliding(12, 3)), windowed(Sliding(12, 3), trigger=every(2))),
    "a function over slices": (windowed(Sliding(12, 3), whole, trigger=every(2)), windowed(Sliding(12, 3), whole)),
    "another generator": (marked(generator=Rising), marked(generator=Falling)),
    "the clock of what is suppressed": (suppressed(after_s=5), suppressed(after_s=5, clock="processing")),
    "a key": (
        lambda stream: stream.watermarks("time", time_of).window("op", Tumbling(10), Count()), windowed(Tumbling(10)),
    ),
    "windows of a user": (windowed(Days(1)), windowed(Days(2))),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSALS)
def test_what_state_depends_on_is_refused_both_ways(what: str) -> None:
    plans = [built(build) for build in REFUSALS[what]]
    for before, after in (plans, plans[::-1]):
        with pytest.raises(PipelineError, match="was .* when the checkpoint was taken and is .* now; its state would"):
            rescaled(before, saved(before, {}), after).chains()


class Task:
    """The task of the operator `op`, in one version of the pipeline after the other."""

    def __init__(self, build: Build) -> None:
        self.plan = built(build)
        self.services = Services()
        self.chain: Any = self.plan.chain(self._task(self.plan).index)
        self._first = 0

    def _task(self, job_plan: Plan) -> Any:
        return next(task for task in job_plan.topology.tasks if "op" in task.operators)

    def give(self, records: Sequence[Any], mark_s: float | None = None) -> list[Any]:
        chunks = [records_chunk(list(records))] if records else []
        if mark_s is not None:
            chunks.append(watermark(round(mark_s * S)))
        out = self.chain.deliver(0, chunks, self._first, self.services)
        self._first += len(records)
        return records_in([output for output in out if output[1].kind != WATERMARK])

    def changed(self, build: Build) -> None:
        after = built(build)
        old, new = self._task(self.plan), self._task(after)
        files = {old.name: [parts_of(self.chain, True)]}
        parts = rescaled(self.plan, saved(self.plan, files), after).chains()
        self.plan, self._first = after, 0
        self.chain = after.chain(new.index)
        self.chain.restore(parts[new.name])


@pytest.mark.parametrize(("before_s", "after_s"), [(0, 20), (20, 0)])
def test_another_lateness_of_sessions_contradicts_nothing(before_s: float, after_s: float) -> None:
    task = Task(windowed(Session(4), lateness_s=before_s))
    task.give([(1, 3), (1, 4)], 30)
    task.changed(windowed(Session(4), lateness_s=after_s))
    assert task.give([(1, 4)]) == [] and task.give([], 31) == [], "it was closed, or is now"
    assert task.give([(1, 24)]) == [] or after_s
    assert all(row[1] == 1 for row in records_in(task.chain.finish(task.services)))


@pytest.mark.parametrize("before", [every_s(1000), every(9), every_s(1000, clock="processing")])
def test_a_period_counts_from_the_savepoint_on(before: Any) -> None:
    task = Task(windowed(Global(), trigger=before))
    assert task.give([], 2) == [] == task.give([(1, 3)], 13) == task.give([(1, 14)], 15)
    task.changed(windowed(Global(), trigger=every_s(10)))
    assert task.give([], 19) == []
    assert task.give([], 21) == [(1, 2, 0.0, 2.0)]


def test_a_period_of_the_wall_clock_counts_from_the_first_reading() -> None:
    task = Task(windowed(Global(), trigger=every_s(1000)))
    assert task.give([], 2) == [] == task.give([(1, 3)], 13)
    task.changed(windowed(Global(), trigger=every_s(10, clock="processing")))
    fired = [
        (at_s, records_in(task.chain.fire(at_s * S, task.services)))
        for at_s in (1003, 1009, 1010)
        if (task.chain.next_timer_ns() or 1 << 70) <= at_s * S
    ]
    assert fired == [(1003, []), (1010, [(1, 1, 0.0, 1.0)])]


def revised(number: int) -> Any:
    """Return a revision of a window that ends at 10."""
    return ((number, 0, 10), None, 1)


def test_what_is_suppressed_is_due_as_the_options_now_say() -> None:
    task = Task(suppressed(after_s=100))
    assert task.give([revised(1)], 5) == [] == task.give([revised(2)])
    task.changed(suppressed(until="closed"))
    assert [key for key, _, _ in task.give([], 10)] == [(1, 0, 10), (2, 0, 10)]

    task = Task(suppressed(until="closed"))
    assert task.give([revised(1)], 5) == []
    task.changed(suppressed(after_s=20))
    assert task.give([], 24) == [] and len(task.give([], 25)) == 1

    task = Task(suppressed(after_s=100))
    assert task.give([], 5) == [] == task.give([revised(1)], 10)
    task.changed(suppressed(after_s=7))
    assert task.give([], 11) == [] and len(task.give([], 12)) == 1, "7 s after it was first held"


def test_what_is_suppressed_by_the_wall_clock_is_due_as_the_options_now_say() -> None:
    task = Task(suppressed(after_s=100, clock="processing"))
    assert task.give([revised(1)], 5) == [] and task.give([], 10) == []
    was_ns = task.chain.next_timer_ns()
    assert was_ns is not None
    task.changed(suppressed(after_s=7, clock="processing"))
    assert task.chain.next_timer_ns() == was_ns - 93 * S, "7 s after it was first held"


def test_windows_of_vectors_continue_in_more_tasks() -> None:
    pa = pytest.importorskip("pyarrow")

    def vectors(tasks: int) -> Build:
        schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
        return lambda stream: (
            stream.to_vectors("v", schema).key_by("k").window("op", 5.0, lambda batch, window: batch, parallelism=tasks)
        )

    plans = built(vectors(1)), built(vectors(5))
    before, after = ([task for task in each.topology.tasks if "op" in task.operators] for each in plans)
    chain, services = plans[0].chain(before[0].index), Services()
    chain.deliver(0, [chunk for _, chunk in plans[0].chain(0).deliver(0, listed([{"k": 1, "v": 2}]), 0, services)], 0,
                  services)  # fmt: skip
    parts = rescaled(plans[0], saved(plans[0], {str(before[0].name): [parts_of(chain, True)]}), plans[1]).chains()
    out = []
    for task in after:
        chain = plans[1].chain(task.index)
        chain.restore(parts[task.name])
        out += chain.fire(chain.next_timer_ns() or 0, services)
    assert sum(chunk.count for _, chunk in out) == 1
