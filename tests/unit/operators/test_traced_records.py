"""The origins of rows, compared with the ids that operators carry on: never fewer, and the same where they are exact.

Records, batches, the order of deliveries and the moments of timers are drawn by a seed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from operators import (
    Aggregate,
    BroadcastOperator,
    CountWindow,
    Global,
    ListState,
    Operator,
    Pipeline,
    Session,
    Sliding,
    Tumbling,
    ValueState,
    every,
)
from operators.builder.pipeline import Stream
from operators.replay.provenance import Origins
from tests.members import sample
from tests.unit.operators.scene import NoSink, source
from tests.unit.operators.traced_run import Row, TracedRun

ID = re.compile(r"[lr]\d+")
SEEDS = sample(range(60), 3)
Build = Callable[[Stream[Any], Stream[Any]], Any]


def records(name: str, count: int, chance: Random) -> list[dict[str, Any]]:
    """Return records in almost the order of their times."""
    return [
        {"id": f"{name}{n}", "ids": [f"{name}{n}"], "k": chance.randrange(4), "t": n + chance.random() * 3,
         "v": chance.randrange(10)}
        for n in range(count)
    ]  # fmt: skip


def ids_in(value: Any) -> set[str]:
    """Return all ids in a row."""
    if isinstance(value, dict):
        return set().union(*map(ids_in, value.values()))
    if isinstance(value, (list, tuple)):
        return set().union(*map(ids_in, value))
    return {value} if isinstance(value, str) and ID.fullmatch(value) else set()


def by_k(record: Any) -> Any:
    return record["k"]


def time_of(record: Any) -> float:
    return float(record["t"])


def both(left: Any, right: Any) -> Any:
    sides = [side for side in (left, right) if side is not None]
    return {**sides[0], "ids": [each for side in sides for each in side["ids"]]}


IDS: Aggregate[Any, Any] = Aggregate(
    list,
    lambda ids, r: [*ids, *r["ids"]],
    merge=lambda a, b: [*a, *b],
    subtract=lambda ids, r: [i for i in ids if i not in r["ids"]],
)


def listed(key: Any, rows: list[Any], window: Any) -> Iterator[Any]:
    yield {"k": key, "t": window.end, "ids": [each for row in rows for each in row["ids"]]}


class Gathering(Operator):
    """Emits all ids of a key since its state was last emptied."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ids = ctx.state.setdefault("ids", [])
        ids += record["ids"]
        yield {**record, "ids": list(ids)}
        if record["v"] == 3:
            ctx.state.clear()
        if record["v"] == 4:
            ctx.aside("four", {**record, "ids": list(ids)})


class Gathered(Operator):
    """Does the same without a side output."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ids = ctx.state.setdefault("ids", [])
        ids += record["ids"]
        yield {**record, "ids": list(ids)}


class Declared(Operator):
    seen = ListState[str]()
    last = ValueState[str]()

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        before = self.last.value
        self.seen.extend(record["ids"])
        self.last.value = record["id"]
        yield {**record, "ids": [*self.seen, before or record["id"]]}
        if record["v"] > 7:
            self.seen.clear()
            self.last.clear()


class Stateless(Operator):
    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield record
        yield {**record, "again": True}


class Timed(Operator):
    """Emits what has gathered when a timer fires."""

    def __init__(self, clock: str) -> None:
        self._clock = clock

    def process(self, record: Any, ctx: Any) -> None:
        ctx.state.setdefault("ids", []).extend(record["ids"])
        at = record["t"] + 5 if self._clock == "event" else ctx.now() + 0.01
        ctx.set_timer(at, "wake", clock=self._clock)

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield {"k": ctx.key, "ids": ctx.state.pop("ids", [])}

    def finish(self, ctx: Any) -> Iterator[Any]:
        yield {"k": ctx.key, "ids": list(ctx.state.get("ids", []))}


class Ruled(BroadcastOperator):
    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        rules = [each for rule in ctx.broadcast.values() for each in rule]
        ctx.state.setdefault("ids", []).extend(record["ids"])
        yield {**record, "ids": [*ctx.state["ids"], *rules]}

    def process_broadcast(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.broadcast[record["k"]] = record["ids"]
        yield record


def asked(record: Any, key: str) -> Any:
    raise NotImplementedError("the run answers")


def combined(record: Any, answer: Any) -> Any:
    return {**record, "answer": answer["seen"]}


def marked(stream: Stream[Any], name: str) -> Stream[Any]:
    return stream.watermarks(name, time_of, out_of_order_s=3.0)


def rows_of(table: Any) -> Any:
    return table.to_stream("rows", lambda key, row: {"key": key, "row": row})


EXACT: dict[str, Build] = {
    "stateless": lambda a, b: (
        a.map("m", dict).filter("f", lambda r: r["v"] != 5).flat_map("fm", lambda r: [r] * r["v"])
    ),
    "union": lambda a, b: a.map("m", dict).union(b.filter("f", lambda r: r["v"] > 2)).map("n", dict),
    "process without state": lambda a, b: a.key_by(by_k).process("p", Stateless(), parallelism=2),
    "reduce": lambda a, b: a.key_by(by_k).reduce(
        "sum", lambda x, y: {**y, "ids": [*x["ids"], *y["ids"]]}, parallelism=2
    ),
    "reduce twice": lambda a, b: (
        a.key_by(by_k)
        .reduce("one", lambda x, y: {**y, "ids": [*x["ids"], *y["ids"]]}, parallelism=2)
        .map("second", lambda row: row[1])
        .key_by(lambda r: r["v"] % 2)
        .reduce("two", lambda x, y: {**y, "ids": [*x["ids"], *y["ids"]]})
    ),
    "tumbling": lambda a, b: marked(a, "w").key_by(by_k).window("t", Tumbling(5), listed, parallelism=2),
    "tumbling aggregate": lambda a, b: marked(a, "w").key_by(by_k).window("t", Tumbling(5), IDS),
    "tumbling with lateness": lambda a, b: (
        a.watermarks("w", time_of).key_by(by_k).window("t", Tumbling(4), IDS, lateness_s=3)
    ),
    "sliding": lambda a, b: marked(a, "w").key_by(by_k).window("t", Sliding(6, 3), listed),
    "sliding in slices": lambda a, b: marked(a, "w").key_by(by_k).window("t", Sliding(9, 1), IDS, parallelism=2),
    "session": lambda a, b: marked(a, "w").key_by(by_k).window("t", Session(2), IDS),
    "window without a key": lambda a, b: marked(a, "w").window("t", Tumbling(5), listed),
    "by the wall clock": lambda a, b: a.key_by(by_k).window("t", 0.01, listed),
    "by count": lambda a, b: a.key_by(by_k).window("t", CountWindow(4, 2), listed, parallelism=2),
    "join": lambda a, b: marked(a, "w").key_by(by_k).join("j", marked(b, "x").key_by(by_k), within=(-2, 2), fn=both),
    "outer join": lambda a, b: (
        marked(a, "w")
        .key_by(by_k)
        .join("j", marked(b, "x").key_by(by_k), within=(-1, 1), how="outer", fn=both, parallelism=2)
    ),
    "window join": lambda a, b: (
        marked(a, "w").key_by(by_k).window_join("j", marked(b, "x").key_by(by_k), Tumbling(4), how="outer", fn=both)
    ),
    "join as of": lambda a, b: (
        marked(a, "w")
        .key_by(by_k)
        .join_table("j", marked(b, "x").key_by(by_k).table("t"), how="left", fn=both, as_of=True)
    ),
    "call": lambda a, b: a.call("ask", asked, combine=combined, order="completion"),
    "call in order": lambda a, b: a.key_by(by_k).call("ask", asked, combine=combined, parallelism=2),
    "window table": lambda a, b: rows_of(marked(a, "w").key_by(by_k).window_table("t", Tumbling(5), IDS)),
    "aggregate table": lambda a, b: rows_of(a.key_by(by_k).aggregate_table("t", IDS, parallelism=2)),
    "late records": lambda a, b: a.watermarks("w", time_of).key_by(by_k).window("t", Tumbling(2), IDS).side("late"),
}
"""Pipelines of whose rows everything is known."""
BOUNDED: dict[str, Build] = {
    "process": lambda a, b: a.map("m", dict).key_by(by_k).process("p", Gathering(), parallelism=2),
    "side": lambda a, b: a.key_by(by_k).process("p", Gathering()).side("four"),
    "declared state": lambda a, b: a.key_by(by_k).process("p", Declared()),
    "state without a key": lambda a, b: a.process("p", Gathering()),
    "ordered": lambda a, b: marked(a, "w").union(marked(b, "x")).timed(time_of).key_by(by_k).process(
        "p", Gathering(), delivery="ordered", parallelism=2
    ),
    "speculative": lambda a, b: marked(a, "w").key_by(by_k).process(
        "p", Gathered(), delivery="speculative"
    ).revisions("r"),
    "timers": lambda a, b: a.key_by(by_k).process("p", Timed("processing"), parallelism=2),
    "event-time timers": lambda a, b: marked(a, "w").key_by(by_k).process("p", Timed("event")),
    "ordered timers": lambda a, b: marked(a, "w").key_by(by_k).process("p", Timed("event"), delivery="ordered"),
    "trigger": lambda a, b: marked(a, "w").key_by(by_k).window("t", Tumbling(6), IDS, trigger=every(2)),
    "global window": lambda a, b: a.key_by(by_k).window("t", Global(), IDS, trigger=every(3)),
    "broadcast": lambda a, b: a.key_by(by_k).broadcast("r", b, Ruled(), parallelism=2),
    "broadcast that waits": lambda a, b: a.key_by(by_k).broadcast("r", b, Ruled(), wait=True),
    "table": lambda a, b: a.key_by(by_k).table("t").revisions("r"),
    "join with a table": lambda a, b: a.key_by(by_k).join_table("j", b.key_by(by_k).table("t"), how="left", fn=both),
    "filtered table": lambda a, b: rows_of(
        a.key_by(by_k).table("t").filter("f", lambda k, row: row["v"] > 2).map_values("mv", lambda k, row: row["ids"])
    ),
    "joined tables": lambda a, b: rows_of(
        a.key_by(by_k).table("s").join("j", b.key_by(by_k).table("t"), how="outer", fn=both)
    ),
    "grouped table": lambda a, b: rows_of(
        a.key_by(lambda r: r["v"]).table("s").group_by("g", lambda k, row: row["k"]).aggregate("sum", IDS)
    ),
    "suppressed table": lambda a, b: rows_of(
        marked(a, "w").key_by(by_k).aggregate_table("s", IDS).suppress("q", after_s=4)
    ),
    "session table": lambda a, b: rows_of(marked(a, "w").key_by(by_k).window_table("t", Session(2), IDS)),
    "windows of a process": lambda a, b: (
        marked(a, "w").key_by(by_k).process("p", Gathering()).timed(time_of).key_by(by_k)
        .window("t", Tumbling(5), listed)
    ),
}  # fmt: skip
"""Pipelines of whose rows an upper bound is known."""


def traced(build: Build, seed: int, untraced: int = 0, **settings: Any) -> TracedRun:
    """Run a pipeline with two sources."""
    chance = Random(seed)
    pipeline = Pipeline("traced")
    left, right = pipeline.source("left", source()), pipeline.source("right", source())
    result = build(left, right)
    result.sink("out", NoSink())
    if not any(edge.source.name == "right" for node in pipeline.nodes for edge in node.edges):
        right.sink("unused", NoSink())
    sources = {"left": records("l", 50, chance), "right": records("r", 40, chance)}
    return TracedRun(pipeline, sources, seed, untraced, **settings)


def rows_with_truth(run: TracedRun) -> Iterator[tuple[Row, set[str], set[str], Origins]]:
    """Yield each row of the sink with the ids that it carries, and those of its origins."""
    for row in run.rows:
        if row.account.startswith("out/"):
            document = json.loads(row.document)
            ids, origins = run.origins(row)
            if (
                not isinstance(document, dict) or document.get("row", 0) is not None
            ):  # a row of a table that is gone carries nothing
                yield row, ids_in(document), ids, origins


def exact(origins: Origins) -> bool:
    return all(bound.exact and not bound.older for bound in origins.bounds.values())


@pytest.mark.parametrize("processes", ["per-task", "stages"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [*EXACT, *BOUNDED])
def test_origins_are_never_too_few_and_exact_where_they_say_so(name: str, seed: int, processes: str) -> None:
    rows = 0
    for row, truth, ids, origins in rows_with_truth(traced({**EXACT, **BOUNDED}[name], seed, processes=processes)):
        rows += 1
        assert truth <= ids, row.document
        assert exact(origins) or name in BOUNDED, row.document
        assert not exact(origins) or ids == truth, row.document
    assert rows


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [*EXACT, *BOUNDED])
def test_what_was_before_the_replay_is_said_to_be_missing(name: str, seed: int) -> None:
    run = traced({**EXACT, **BOUNDED}[name], seed, 20)
    for row, truth, ids, origins in rows_with_truth(run):
        before = {each for each in truth if int(each[1:]) < 20}
        assert truth - before <= ids, row.document
        assert not exact(origins) or ids == truth, row.document
        assert not before or any(bound.older for bound in origins.bounds.values()), row.document


class Refusing(Operator):
    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ids = ctx.state.setdefault("ids", [])
        ids += record["ids"]
        yield {**record, "ids": list(ids)}
        if record["v"] in (2, 6):
            raise ValueError("refused after an output")
        if record["v"] == 3:
            ctx.state.clear()


def refused(record: Any) -> Any:
    if record["v"] == 4:
        raise ValueError("refused")
    return record


def refused_pair(left: Any, right: Any) -> Any:
    return refused(both(left, right))


SOME: Aggregate[Any, Any] = Aggregate(
    list, lambda ids, r: [*ids, *refused(r)["ids"]], merge=lambda a, b: [*a, *b]
)  # fmt: skip
REFUSING: dict[str, Build] = {
    "process": lambda a, b: a.map("m", refused).key_by(by_k).process("p", Refusing(), parallelism=2),
    "ordered": lambda a, b: marked(a, "w").key_by(by_k).process("p", Refusing(), delivery="ordered"),
    "reduce": lambda a, b: a.key_by(by_k).reduce("s", lambda x, y: {**refused(y), "ids": [*x["ids"], *y["ids"]]}),
    "session": lambda a, b: marked(a, "w").key_by(by_k).window("t", Session(2), SOME),
    "slices": lambda a, b: marked(a, "w").key_by(by_k).window("t", Sliding(9, 1), SOME),
    "join": lambda a, b: (
        marked(a, "w").key_by(by_k).join("j", marked(b, "x").key_by(by_k), within=(-2, 2), how="outer", fn=refused_pair)
    ),
    "joined tables": lambda a, b: rows_of(
        a.key_by(by_k).table("s").join("j", b.key_by(by_k).table("t"), how="outer", fn=refused_pair)
    ),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", REFUSING)
def test_dead_letters_have_origins_and_what_was_refused_makes_no_row_exact(name: str, seed: int) -> None:
    run, letters = traced(REFUSING[name], seed, on_error="dead-letter"), 0
    for row in run.rows:
        if row.account.startswith("dead-letters/"):
            letters += 1
            ids, _ = run.origins(row)
            assert ids_in(json.loads(row.document)["record"]) <= ids, row.document
    for row, truth, ids, origins in rows_with_truth(run):
        assert truth <= ids, row.document
        assert not exact(origins) or ids == truth, row.document
    assert letters
