"""Each option of windows and of what counts event time is known to an upgrade: refused, or from the savepoint on.

`OPTIONS` has every one of them, found by the signatures of the builder; those that count from the savepoint on have a
test below that says what comes out, or belong to the model in `tests/properties/test_window_upgrades.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from causal.errors import PipelineError
from causal.records.batch import WATERMARK, stamp_of, watermark
from operators import Pipeline, WatermarkGenerator
from operators.builder.pipeline import KeyedStream, Table
from operators.engine.plan import Plan, plan
from operators.kinds.windows import triggers
from operators.kinds.windows.aggregates import Count, Sum
from operators.kinds.windows.assigners import CountWindow, Global, Session, Sliding, Tumbling
from operators.kinds.windows.triggers import every, every_s
from tests.unit.operators.scene import NoSink, Services, config, listed, parts_of, records_chunk, records_in, source
from tests.unit.operators.test_rescaling import GROUPS, rescaled, saved

S = 1_000_000_000
Build = Callable[[Any], Any]
NOW, REFUSED, FREE = "from the savepoint on", "refused", "no state depends on it"


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


def tabled(**options: Any) -> Build:
    return timed(lambda stream: stream.window_table("op", Tumbling(10), Count(), **options).revisions("r"))


def suppressed(tasks: int = 1, **options: Any) -> Build:
    def build(stream: Any) -> Any:
        rows = stream.window_table("rows", Tumbling(10), Count(), grace_s=100)
        return rows.suppress("op", parallelism=tasks, **options).revisions("r")

    return timed(build)


def joined(**options: Any) -> Build:
    return timed(lambda stream: stream.join("op", stream, **{"within": (-2, 2), **options}))


def window_joined(assigner: Any = None, **options: Any) -> Build:
    return timed(lambda stream: stream.window_join("op", stream, assigner or Tumbling(3), **options))


def looked_up(**options: Any) -> Build:
    return timed(lambda stream: stream.join_table("op", stream.table("rows"), **options))


OPTIONS: dict[tuple[Callable[..., Any], str], str | tuple[Build, Build]] = {
    (KeyedStream.window, "assigner"): (windowed(Tumbling(10)), windowed(Tumbling(20))),
    (KeyedStream.window, "contents"): (windowed(Tumbling(10)), windowed(Tumbling(10), Sum(time_of))),
    (KeyedStream.window, "parallelism"): NOW,
    (KeyedStream.window, "trigger"): NOW,
    (KeyedStream.window, "lateness_s"): NOW,
    (KeyedStream.window, "delivery"): NOW,
    (KeyedStream.window_table, "assigner"): REFUSED,
    (KeyedStream.window_table, "aggregate"): REFUSED,
    (KeyedStream.window_table, "grace_s"): NOW,
    (KeyedStream.window_table, "parallelism"): NOW,
    (Table.suppress, "until"): NOW,
    (Table.suppress, "after_s"): NOW,
    (Table.suppress, "keys_max"): NOW,
    (Table.suppress, "parallelism"): NOW,
    (KeyedStream.watermarks, "time"): NOW,
    (KeyedStream.watermarks, "out_of_order_s"): NOW,
    (KeyedStream.watermarks, "idle_after_s"): NOW,
    (KeyedStream.watermarks, "generator"): (marked(), marked(generator=Rising)),
    (KeyedStream.join, "other"): FREE,
    (KeyedStream.join, "within"): (joined(), joined(within=(-3, 2))),
    (KeyedStream.join, "fn"): NOW,
    (KeyedStream.join, "how"): (joined(), joined(how="left")),
    (KeyedStream.join, "parallelism"): NOW,
    (KeyedStream.window_join, "other"): FREE,
    (KeyedStream.window_join, "assigner"): (window_joined(), window_joined(Sliding(3, 1))),
    (KeyedStream.window_join, "fn"): NOW,
    (KeyedStream.window_join, "how"): (window_joined(), window_joined(how="left")),
    (KeyedStream.window_join, "parallelism"): NOW,
    (KeyedStream.join_table, "table"): FREE,
    (KeyedStream.join_table, "fn"): NOW,
    (KeyedStream.join_table, "how"): (looked_up(), looked_up(how="left")),
    (KeyedStream.join_table, "wait"): NOW,
    (KeyedStream.join_table, "as_of"): (looked_up(), looked_up(as_of=True)),
    (KeyedStream.join_table, "parallelism"): NOW,
    (Tumbling, "size_s"): (windowed(Tumbling(10)), windowed(Tumbling(10.000001))),
    (Tumbling, "offset_s"): (windowed(Tumbling(10)), windowed(Tumbling(10, offset_s=1))),
    (Tumbling, "clock"): (windowed(Tumbling(10)), windowed(Tumbling(10, clock="processing"))),
    (Sliding, "size_s"): (windowed(Sliding(10, 5)), windowed(Sliding(20, 5))),
    (Sliding, "every_s"): (windowed(Sliding(10, 5)), windowed(Sliding(10, 10))),
    (Sliding, "offset_s"): (windowed(Sliding(10, 5)), windowed(Sliding(10, 5, offset_s=1))),
    (Sliding, "clock"): (windowed(Sliding(10, 5)), windowed(Sliding(10, 5, clock="processing"))),
    (Session, "gap_s"): (windowed(Session(10)), windowed(Session(20))),
    (Session, "clock"): (windowed(Session(10)), windowed(Session(10, clock="processing"))),
    (CountWindow, "n"): (windowed(CountWindow(10)), windowed(CountWindow(20))),
    (CountWindow, "every"): (windowed(CountWindow(10)), windowed(CountWindow(10, every=5))),
    (triggers.every, "n"): NOW,
    (triggers.every, "purge"): NOW,
    (triggers.every_s, "seconds"): NOW,
    (triggers.every_s, "clock"): NOW,
    (triggers.every_s, "purge"): NOW,
    (triggers.after_each, "purge"): NOW,
}  # fmt: skip


def options_of(method: Callable[..., Any]) -> set[str]:
    of = method.__init__ if inspect.isclass(method) else method
    return set(inspect.signature(of).parameters) - {"self", "name", "args", "kwargs"}


@pytest.mark.parametrize("method", list(dict.fromkeys(method for method, _ in OPTIONS)), ids=lambda each: each.__name__)
def test_every_option_is_known_to_upgrades(method: Callable[..., Any]) -> None:
    assert options_of(method) == {option for of, option in OPTIONS if of is method}


REFUSALS = {f"{of.__name__} {option}": how for (of, option), how in OPTIONS.items() if isinstance(how, tuple)}
REFUSALS |= {
    "a trigger where there are slices": (windowed(Sliding(12, 3)), windowed(Sliding(12, 3), trigger=every(2))),
    "slices where there was a trigger": (windowed(Sliding(12, 3), trigger=every(2)), windowed(Sliding(12, 3))),
    "a function over slices": (windowed(Sliding(12, 3), whole, trigger=every(2)), windowed(Sliding(12, 3), whole)),
    "another generator": (marked(generator=Rising), marked(generator=Falling)),
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
        self.marks = [stamp_of(chunk) / S for _, chunk in out if chunk.kind == WATERMARK]
        return records_in([output for output in out if output[1].kind != WATERMARK])

    def changed(self, build: Build, **options: Any) -> None:
        after = built(build)
        old, new = self._task(self.plan), self._task(after)
        files = {old.name: [parts_of(self.chain, True)]}
        parts = rescaled(self.plan, saved(self.plan, files), after, **options).chains()
        self.plan, self._first = after, 0
        self.chain = after.chain(new.index)
        self.chain.restore(parts[new.name])

    def finish(self) -> list[Any]:
        return records_in(self.chain.finish(self.services))


def test_a_trigger_that_is_added_loses_no_open_window() -> None:
    task = Task(windowed(Tumbling(10)))
    assert task.give([(1, 5), (1, 6), (2, 15)], 8) == []
    task.changed(windowed(Tumbling(10), trigger=every(2)))
    assert task.give([(1, 7)], 8.5) == [], "it counts from the savepoint on"
    assert task.give([(1, 8)]) == [(1, 4, 0.0, 10.0)]
    assert task.give([], 30) == [(2, 1, 10.0, 20.0)]


def test_a_trigger_that_is_gone_leaves_no_second_result() -> None:
    task = Task(windowed(Tumbling(10), trigger=every(2)))
    assert task.give([(1, 5), (1, 6), (2, 5)]) == [(1, 2, 0.0, 10.0)]
    task.changed(windowed(Tumbling(10)))
    assert task.give([], 12) == [(2, 1, 0.0, 10.0)], "the window of 1 has got nothing since"
    task = Task(windowed(Tumbling(10), trigger=every(2)))
    assert task.give([(1, 5), (1, 6)]) == [(1, 2, 0.0, 10.0)]
    task.changed(windowed(Tumbling(10)))
    assert task.give([(1, 7)], 12) == [(1, 3, 0.0, 10.0)]


def test_every_with_a_smaller_number_fires_at_the_next_record() -> None:
    task = Task(windowed(Global(), trigger=every(5)))
    assert task.give([(1, at) for at in range(4)]) == []
    task.changed(windowed(Global(), trigger=every(3)))
    assert task.give([(1, 4)]) == [(1, 5, 0.0, 5.0)]
    assert task.give([(1, 5), (1, 6), (1, 7)]) == [(1, 8, 0.0, 8.0)]


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


@pytest.mark.parametrize("before_s, after_s", [(0, 20), (20, 0)])
@pytest.mark.parametrize("assigner", [Tumbling(10), Sliding(10, 5), Sliding(12, 3), Session(4)])
def test_another_lateness_contradicts_nothing(assigner: Any, before_s: float, after_s: float) -> None:
    task = Task(windowed(assigner, lateness_s=before_s))
    task.give([(1, 3), (1, 4)], 30)
    task.changed(windowed(assigner, lateness_s=after_s))
    assert task.give([(1, 4)]) == [] and task.give([], 31) == [], "it was closed, or is now"
    assert task.give([(1, 24)]) == [] or after_s
    assert all(row[1] == 1 for row in task.finish())


def test_a_longer_grace_opens_no_row_that_was_closed() -> None:
    task = Task(tabled())
    assert task.give([(1, 3), (1, 4), (1, 5)], 12)[-1] == ((1, 0.0, 10.0), 2, 3)
    task.changed(tabled(grace_s=30))
    assert task.give([(1, 6)]) == [] and task.chain.counts()["op"] == {"late": 1}
    assert task.give([(1, 13)], 25) == [((1, 10.0, 20.0), None, 1)]
    assert task.give([(1, 14)]) == [((1, 10.0, 20.0), 1, 2)]


@pytest.mark.parametrize("appended", [False, True], ids=["removed", "appended"])
def test_the_state_of_a_task_is_found_though_an_operator_without_state_gives_it_another_name(appended: bool) -> None:
    def mapped(build: Build) -> Build:
        return lambda stream: build(stream).map("same", lambda record: record)

    plain = windowed(Tumbling(10))
    before, after = (plain, mapped(plain)) if appended else (mapped(plain), plain)
    task = Task(before)
    assert task.give([(1, 5), (2, 6)], 8) == []
    task.changed(after)
    assert task.give([(1, 7)], 12) == [(1, 2, 0.0, 10.0), (2, 1, 0.0, 10.0)]


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


def test_fewer_keys_are_kept_from_the_next_one_on() -> None:
    task = Task(suppressed(after_s=100))
    assert task.give([revised(number) for number in range(5)], 5) == []
    task.changed(suppressed(after_s=100, keys_max=2))
    assert len(task.give([revised(9)])) == 4


def test_times_out_of_order_and_idleness_count_from_the_savepoint_on() -> None:
    def watermarks(**options: Any) -> Build:
        return lambda stream: stream.watermarks("op", time_of, **options)

    task = Task(watermarks(out_of_order_s=2, idle_after_s=1000))
    assert task.give([(1, 10)]) and task.marks == [8]
    task.chain.fire(task.services.now_ns(), task.services)
    task.changed(watermarks(out_of_order_s=5, idle_after_s=1))
    assert task.give([(1, 11)]) and task.marks == [], "event time does not fall"
    assert task.give([(1, 14)]) and task.marks == [9]
    assert task.chain.next_timer_ns() == 0, "the first check is due"


def test_windows_of_vectors_continue_in_more_tasks() -> None:
    pa = pytest.importorskip("pyarrow")

    def vectors(tasks: int) -> Build:
        schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
        return lambda stream: (
            stream.to_vectors("v", schema).key_by("k").window("op", 5.0, lambda batch, window: batch, parallelism=tasks)
        )

    before, after = built(vectors(1)), built(vectors(5))
    [task] = [task for task in before.topology.tasks if "op" in task.operators]
    chain, services = before.chain(task.index), Services()
    feeder = before.chain(0)
    body = [chunk for _, chunk in feeder.deliver(0, listed([{"k": 1, "v": 2}]), 0, services)]
    chain.deliver(0, body, 0, services)
    parts = rescaled(before, saved(before, {str(task.name): [parts_of(chain, True)]}), after).chains()
    out = []
    for task in after.topology.tasks:
        if "op" in task.operators:
            chain = after.chain(task.index)
            chain.restore(parts[task.name])
            due_ns = chain.next_timer_ns()
            assert due_ns is not None
            out += chain.fire(due_ns, services)
    assert sum(chunk.count for _, chunk in out) == 1
