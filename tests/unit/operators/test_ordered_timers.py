"""`delivery="ordered"`: event-time timers and times to live stand between the same records in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from causal.errors import OperatorFailed
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run

LIVES_S, WAITS_S = 0.15, 0.35


def unread(partition: int, i: int) -> Any:
    """Return a record of a source whose records the test supplies instead."""
    return i


def records(name: str, shift_s: float) -> list[dict[str, Any]]:
    chance = random.Random(name)
    return [
        {
            "id": f"{name} {i}",
            "k": chance.randint(0, 2),
            "v": chance.randint(0, 4),
            "at": 100 + i * 0.1003 + chance.choice([0, 0.1, 0.2]) + shift_s,
        }
        for i in range(100)
    ]


class Ticking(Operator):
    """A tick each second until a timer at 4 s stops it."""

    def process(self, record: Any, ctx: Any) -> None:
        ctx.set_timer(1, "tick", clock="event")
        ctx.set_timer(4, "end", clock="event")

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        if name == "tick":
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            ctx.set_timer(ctx.event_time() + 1, "tick", clock="event")
        else:
            ctx.clear_timer("tick", clock="event")
            yield (name, ctx.event_time(), ctx.state["n"])


@pytest.mark.parametrize("delivery", ["arrival", "ordered"])
@pytest.mark.parametrize("batch", [1, 2, 100])
def test_a_timer_that_sets_itself_fires_before_a_later_one(delivery: str, batch: int) -> None:
    pipeline = Pipeline("ticking")
    stream = pipeline.source("in", GeneratedSource(lambda p, i: i, count=0)).watermarks("time", lambda at: at)
    kept = stream.filter("first", lambda at: at == 0)
    kept.key_by(lambda at: "k").process("tick", Ticking(), delivery=delivery).sink("out", SqliteSink("out.db"))
    assert run(pipeline, {"in": [0, 3.5, 20]}, batch=batch)["out"] == [("end", 4.0, 3)]


class Backwards(Operator):
    """Sets timers before, at and after the time at which it does; emits the event time at which one fired."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        for number, shift_s in enumerate(record["shifts"]):
            ctx.set_timer(ctx.event_time() + shift_s, f"{record['id']} {number}", clock="event")
        yield ("record", ctx.event_time(), ctx.watermark())

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield (name, ctx.event_time(), ctx.watermark())
        if not name.endswith("again"):
            ctx.set_timer(ctx.event_time() + (-3 if name.endswith("0") else 0.25), f"{name} again", clock="event")


def test_event_time_never_goes_back_where_records_come_in_order() -> None:
    chance = random.Random(4)
    records: list[dict[str, Any]] = [
        {"id": n, "at": 100 + n / 4, "k": chance.randint(0, 1), "shifts": chance.sample([-50, -1, 0, 0.3, 2, 7], 2)}
        for n in range(60)
    ]
    late_first = sorted(records, key=lambda record: record["at"] + chance.random() * 2)
    runs: list[list[Any]] = []
    for batch, seed in product((1, 7, 200), range(2)):
        pipeline = Pipeline("backwards")
        stream = pipeline.source("in", GeneratedSource(unread, count=0))
        timed = stream.watermarks("time", lambda r: r["at"], out_of_order_s=2).key_by(lambda r: r["k"])
        timed.process("op", Backwards(), delivery="ordered").sink("out", SqliteSink("out.db"))
        crash = {"op/0": 23} if seed else {}
        runs.append(run(pipeline, {"in": late_first}, batch=batch, seed=seed, crash=crash)["out"])
    assert all(rows == runs[0] for rows in runs)
    times = [at_s for _, at_s, _ in runs[0]]
    assert times == sorted(times) and len(times) == 60 * 5


def test_timers_that_set_one_another_after_the_end_stop_the_job() -> None:
    class Endless(Operator):
        def process(self, record: Any, ctx: Any) -> None:
            ctx.set_timer(1, clock="event")

        def on_timer(self, name: str, ctx: Any) -> None:
            ctx.set_timer(ctx.event_time() + 1, clock="event")

    pipeline = Pipeline("endless")
    stream = pipeline.source("in", GeneratedSource(lambda p, i: i, count=0)).watermarks("time", lambda at: at)
    stream.process("op", Endless()).sink("out", SqliteSink("out.db"))
    with pytest.raises(OperatorFailed, match="keep setting one another .10000 times after the end"):
        run(pipeline, {"in": [0]})


def test_a_watermark_that_moves_far_fires_as_many_as_there_are() -> None:
    class Often(Operator):
        def process(self, record: Any, ctx: Any) -> None:
            if record == 0:
                ctx.set_timer(1, clock="event")

        def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
            if ctx.event_time() < 12_000:
                ctx.set_timer(ctx.event_time() + 1, clock="event")
            else:
                yield ctx.event_time()

    pipeline = Pipeline("often")
    stream = pipeline.source("in", GeneratedSource(lambda p, i: i, count=0)).watermarks("time", lambda at: at)
    stream.process("op", Often()).sink("out", SqliteSink("out.db"))
    assert run(pipeline, {"in": [0, 100_000]})["out"] == [12_000.0]
