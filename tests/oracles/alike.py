"""Results by event time are those of any other run (docs/design/0018-event-time.md), where no model is this short.

The oracle is a run of the same pipeline that nothing disturbs, one record at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from operators import (
    Count,
    ListState,
    MapState,
    Operator,
    Pipeline,
    ReducingState,
    Session,
    Sliding,
    Sum,
    Tumbling,
    ValueState,
    every_s,
)
from operators.testing import TrialResult, run
from tests.oracles.frame import Draw, Mismatch, Scenario, oracle, sink, source

Row = dict[str, Any]


def timed(draw: Draw, now: float, disorder_s: float, shift: float) -> list[Row]:
    """Draw records from a time on, which come within the bound, no two at one time."""
    rows, keys = [], draw.choice(([0], [0, 1], ["a", "b", (1, "c")]))
    for number in range(draw.randint(1, 40)):
        now += draw.choice((0.01, 0.2, 1, 1, 2, 5, 9, 60))
        rows.append({"at": round(now + shift + number / 8192, 6), "k": draw.choice(keys), "n": number})
    return sorted(rows, key=lambda row: row["at"] + draw.random() * disorder_s)


def alike(draw: Draw, build: Callable[[Any, Any], Any]) -> Scenario:
    """A pipeline of two sources of two partitions each; in whichever order they come, the rows are the same."""
    pipeline, inputs, streams = Pipeline("p"), {}, []
    tasks, begin = draw.choice((1, 2)), draw.choice((-50.0, 0.0, 1.7e9))
    for name, shift in (("a", 0.0), ("b", 1 / 16384)):
        disorder_s = draw.choice((0.0, 0.0, 3.0, 10.0, 40.0))
        rows = timed(draw, begin, disorder_s, shift)
        inputs[name] = [rows[0::2], rows[1::2]]
        stream = source(pipeline, name, 2, parallelism=tasks)
        streams.append(stream.watermarks(f"{name}-time", lambda r: r["at"], out_of_order_s=disorder_s))
    sink(build(*streams))
    expected = Counter(map(repr, run(pipeline, inputs)["out"]))

    def check(result: TrialResult) -> None:
        actual = Counter(map(repr, result["out"]))
        if actual != expected:
            raise Mismatch(f"missing {list(expected - actual)[:5]}, too many {list(actual - expected)[:5]}")

    return Scenario(pipeline, inputs, check)


def united(a: Any, b: Any) -> Any:
    """Both, by key."""
    return a.union(b).timed(lambda r: r["at"]).key_by(lambda r: r["k"])


def _listed(key: Any, records: list[Row], window: Any) -> list[Any]:
    return [(key, window.start, window.end, [record["n"] for record in records])]


@oracle("ordered-windows")
def _windows(draw: Draw) -> Scenario:
    """Windows over several channels by event time."""
    assigner = draw.choice((Tumbling(3, offset_s=1), Tumbling(60), Sliding(10, 5), Session(4)))
    trigger = None if isinstance(assigner, Session) or draw.flip() else every_s(2, clock="event")
    return alike(
        draw,
        lambda a, b: united(a, b).window(
            "op", assigner, _listed, trigger=trigger, delivery="ordered", parallelism=2
        ),
    )  # fmt: skip


class Timed(Operator):
    """State that grows old, and timers that see it, set others and clear one another."""

    value = ValueState[int](ttl_s=8)
    items = ListState[int](ttl_s=5)
    named = MapState[int, int](ttl_s=3)
    total = ReducingState[int](lambda a, b: a + b, ttl_s=60)

    def process(self, record: Row, ctx: Any) -> Any:
        """Read all states and change some; set timers before, at and after the time of the record."""
        n = record["n"]
        yield [n, self.value.value, list(self.items), dict(self.named), len(self.named), self.total.value]
        if self.value.value is None:
            self.value.value = n
        if n % 3 == 0:
            self.items.append(n)
        self.named[n % 4] = n
        if n % 2:
            self.total.add(n)
        ctx.set_timer(record["at"] + (n % 7 - 2), str(n % 5), clock="event")
        if n % 4 == 0:
            ctx.clear_timer("3", clock="event")
        yield ("at", n, ctx.event_time(), ctx.watermark())

    def on_timer(self, name: str, ctx: Any) -> Any:
        yield ("timer", name, ctx.key, ctx.event_time(), ctx.watermark(), list(self.items), dict(self.named))
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if ctx.state["n"] % 3:
            ctx.set_timer(ctx.event_time() + 1.25, name + "'" if len(name) < 3 else "0", clock="event")

    def finish(self, ctx: Any) -> Any:
        yield ("end", ctx.key, self.value.value, list(self.items), dict(self.named), self.total.value)


@oracle("ordered-timers")
def _timers(draw: Draw) -> Scenario:
    """Timers, state that grows old and the end of the input, over several channels by event time."""
    return alike(draw, lambda a, b: united(a, b).process("op", Timed(), delivery="ordered", parallelism=2))


class FirstOnly(Operator):
    """Deduplication, as most would write it."""

    seen = ValueState[bool](ttl_s=4)

    def process(self, record: Row, ctx: Any) -> Any:
        if not self.seen.value:
            self.seen.value = True
            yield record


@oracle("chains")
def _chains(draw: Draw) -> Scenario:
    """Deduplication, windows of the rest, and a join of the windows with the stream; or groups of their tables."""
    assigner, tables = draw.choice((Tumbling(5), Tumbling(20), Sliding(10, 5))), draw.flip(0.3)

    def build(a: Any, b: Any) -> Any:
        first = united(a, b).process("first", FirstOnly(), delivery="ordered").timed(lambda r: r["at"])
        keyed = first.key_by(lambda r: r["k"])
        if tables:
            sums = keyed.window_table("op", assigner, Sum(lambda r: r["n"]), grace_s=3)
            groups = sums.group_by("by", lambda key, total: key[1]).aggregate("groups", Count())
            return groups.suppress("less", after_s=1e9).revisions("rows")
        ends = keyed.window("op", assigner, Count()).map(
            "ends", lambda row: {"k": row[0], "at": row[3] - 1e-6, "n": row[1]}
        )
        other = ends.timed(lambda r: r["at"]).key_by(lambda r: r["k"])
        return keyed.join(
            "joined", other, (0, 20), how="left", fn=lambda left, right: [left["n"], right and right["n"]]
        )

    return alike(draw, build)
