"""`delivery="ordered"`: event-time timers and times to live stand between the same records in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

from operators import Operator, Pipeline, ValueState
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run

LIVES_S, WAITS_S = 0.15, 0.35


class Watch(Operator):
    """Tells each record, what it has forgotten, and when nothing came for a while; a timer that fires sets another."""

    seen = ValueState[int](ttl_s=LIVES_S)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record["v"] == 3:
            ctx.clear_timer("quiet", clock="event")
        else:
            ctx.set_timer(record["at"] + WAITS_S, "quiet", clock="event")
        yield ("record", record["id"], self.seen.value)
        self.seen.value = record["v"]

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield (name, ctx.key, ctx.event_time())
        if name == "quiet":
            ctx.set_timer(ctx.event_time() + WAITS_S / 2, "again", clock="event")


def built() -> Pipeline:
    pipeline = Pipeline("watching")
    timed = [
        pipeline.source(name, GeneratedSource(lambda p, i: i, count=0)).watermarks(
            f"{name}-time", lambda r: r["at"], out_of_order_s=0.3
        )
        for name in ("left", "right")
    ]
    both = timed[0].union(timed[1]).timed(lambda r: r["at"]).key_by(lambda r: r["k"])
    both.process("watch", Watch(), delivery="ordered", parallelism=1).sink("out", SqliteSink("out.db"))
    return pipeline


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


def test_timers_and_times_to_live_are_the_same_in_every_run_and_after_crashes() -> None:
    inputs = {"left": records("left", 0.0), "right": records("right", 0.013)}
    runs = [
        run(built(), inputs, seed=seed, batch=batch, crash={"watch/0": 60} if seed else {}, checkpoint_every=every)[
            "out"
        ]
        for seed, batch, every in product(range(3), (1, 7, 200), (5, 0))
    ]
    assert all(rows == runs[0] for rows in runs)
    kinds = [row[0] for row in runs[0]]
    assert kinds.count("record") == 200
    assert min(kinds.count("quiet"), kinds.count("again")) > 10
    forgotten = [row for row in runs[0] if row[0] == "record" and row[2] is None]
    assert len(forgotten) > 10  # three of them are the first of their key


def test_what_is_due_by_the_time_of_a_record_comes_before_it() -> None:
    inputs = {"left": records("left", 0.0), "right": records("right", 0.013)}
    at_s = {record["id"]: record["at"] for record in inputs["left"] + inputs["right"]}
    now_s = 0.0
    for kind, what, told in run(built(), inputs)["out"]:
        due_s = at_s[what] if kind == "record" else told
        assert due_s >= now_s - 1e-6  # records and timers are in one order of time
        now_s = due_s
