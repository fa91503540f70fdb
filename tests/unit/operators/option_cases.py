"""Witnesses of every option of every operator: two values of it whose rows must differ in a small pipeline.

A `Case` is one callable of the public API.  `build` takes a value for each of its parameters, and makes a pipeline
in which every one of them matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from operators import (
    Aggregate,
    BroadcastOperator,
    Count,
    Operator,
    Pipeline,
    Sliding,
    Sum,
    Tumbling,
    every,
)
from operators.builder.pipeline import Grouped, KeyedStream, Stream, Table
from operators.kinds.eventtime.watermarks import WatermarkGenerator
from operators.sources import ArrowSource, GeneratedSource
from operators.testing import At
from tests.oracles.frame import AnySink, NoSink

Row = dict[str, Any]
Built = tuple[Pipeline, Mapping[str, Any]]


@dataclass(frozen=True)
class Case:
    """One callable.

    Attributes:
        options: parameter → its two values; the first is (or acts as) the default.
        build: the pipeline and its inputs, of a value for each option and each of `beside`.
        beside: what else is varied, as it could make an option be ignored.
        hidden: (option, what makes it not matter), because the documentation says so.
        without: parameters that no scenario can show, and why.
    """

    of: Callable[..., Any]
    options: Mapping[str, tuple[Any, Any]]
    build: Callable[..., Built]
    beside: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    hidden: frozenset[tuple[str, str]] = frozenset()
    without: Mapping[str, str] = field(default_factory=dict)


def row(k: str, at: float, v: int) -> Row:
    """A record."""
    return {"k": k, "at": at, "v": v}


ROWS = [
    row("a", 1, 1), row("b", 2, 2), row("a", 4, 5), row("a", 3, 7), row("b", 9, 4), row("a", 5, 2), row("b", 7, 8),
    row("a", 20, 1), row("b", 21, 6), row("a", 22, 3), row("b", 19, 9), row("a", 40, 4), row("b", 12, 1),
]  # fmt: skip


def from_rows(pipeline: Pipeline, name: str = "in", partitions: int = 1) -> Stream[Any]:
    """A source whose rows are the inputs of the run."""
    return pipeline.source(name, GeneratedSource(lambda partition, index: index, count=0, partitions=partitions))


def key(record: Row) -> Any:
    """Return the key of a record."""
    return record["k"]


def time(record: Row) -> Any:
    """Return the time of a record."""
    return record["at"]


def value(record: Row) -> Any:
    """Return the value of a record."""
    return record["v"]


def out(pipeline: Pipeline, stream: Any, inputs: Any = ROWS, **more: Any) -> Built:
    """Return the pipeline with a sink, and its inputs."""
    stream.sink("out", AnySink())
    return pipeline, {"in": inputs, **more}


def seconds(rows: list[Row]) -> list[At]:
    """Return the rows one after the other by the wall clock."""
    return [At(100.75 + number, each) for number, each in enumerate(rows)]


def apart(rows: list[Row]) -> list[list[Row]]:
    """Divide rows into two partitions."""
    return [rows[::2], rows[1::2]]


def records(key: Any, rows: list[Row], window: Any) -> Any:
    """A function of a window."""
    yield key, "function", [each["v"] for each in rows], window.start, window.end


def listing(values: list[int], record: Row) -> list[int]:
    """An `add` that minds order."""
    return [*values, record["v"]]


def listed() -> Aggregate[Any, Any]:
    """An aggregate that minds order."""
    return Aggregate(list, listing, merge=lambda first, second: first + second)


# Streams.


def _source(source: Any, parallelism: int) -> Built:
    pipeline = Pipeline("p")
    pipeline.source("in", source, parallelism=parallelism).sink("out", AnySink())
    return pipeline, {}


def _per_record(method: str) -> Callable[..., Built]:
    def build(fn: Any) -> Built:
        pipeline = Pipeline("p")
        return out(pipeline, getattr(from_rows(pipeline), method)("x", fn))

    return build


def _key_by(fn: Any) -> Built:
    pipeline = Pipeline("p")
    return out(pipeline, from_rows(pipeline).key_by(fn).count("n"))


def _union(streams: str) -> Built:
    pipeline = Pipeline("p")
    others = [from_rows(pipeline, name) for name in ("one", "two")]
    return out(pipeline, from_rows(pipeline).union(*others[: len(streams)]), one=ROWS, two=ROWS)


def _side(tag: str) -> Built:
    class Asides(Operator):
        def process(self, record: Any, ctx: Any) -> Any:
            ctx.aside(f"tag{record['v'] % 2}", record)

    pipeline = Pipeline("p")
    return out(pipeline, from_rows(pipeline).process("x", Asides()).side(tag))


def _timed(time: Any) -> Built:
    pipeline = Pipeline("p")
    stream = from_rows(pipeline).watermarks("w", lambda r: r["at"]).map("m", lambda r: r).timed(time)
    return out(pipeline, stream.key_by(key).window("x", Tumbling(3), Count()))


class Refusing(NoSink):
    """Takes nothing."""

    def encode(self, records: Any) -> bytes:
        raise TypeError("refused")


def _sink(sink: Any, parallelism: int) -> Built:
    pipeline = Pipeline("p")
    from_rows(pipeline).sink("out", sink, parallelism=parallelism)
    return pipeline, {"in": ROWS}


class Farther(WatermarkGenerator):
    """A watermark far ahead of the records."""

    def on_batch(self, times_ns: Any) -> Any:
        return max(times_ns) + 10 * 10**9


def _watermarks(time: Any, out_of_order_s: float, idle_after_s: Any, generator: Any) -> Built:
    pipeline = Pipeline("p")
    stream = from_rows(pipeline, partitions=2).watermarks(
        "w", time, out_of_order_s=out_of_order_s, idle_after_s=idle_after_s, generator=generator
    )
    window = stream.window("x", Tumbling(2), Count(), parallelism=1)
    window.side("late").sink("late", AnySink())
    return out(pipeline, window, [[*seconds(ROWS[:6]), At(600, row("a", 10, 1))], [row("a", 30, 1), At(1000)]])


class Runs(Operator):
    """Minds order and state."""

    def process(self, record: Any, ctx: Any) -> Any:
        before, ctx.state["v"] = ctx.state.get("v"), record["v"]
        yield record["k"], before, record["v"]


class RunsOtherwise(Runs):
    """The same, and it shows."""

    def process(self, record: Any, ctx: Any) -> Any:
        yield from super().process(record, ctx)
        yield "other"


def unordered(pipeline: Pipeline) -> Any:
    """A keyed stream of two partitions, of which nothing is late."""
    return from_rows(pipeline, partitions=2).watermarks("w", time, out_of_order_s=100).key_by(key)


def _process(operator: Any, parallelism: int, delivery: str, state: str) -> Built:
    pipeline = Pipeline("p")
    output = unordered(pipeline).process("x", operator, parallelism=parallelism, delivery=delivery, state=state)
    return out(pipeline, output, apart(ROWS))


def _reduce(fn: Any, initial: Any, parallelism: int, delivery: str) -> Built:
    pipeline = Pipeline("p")
    output = unordered(pipeline).reduce("x", fn, initial=initial, parallelism=parallelism, delivery=delivery)
    return out(pipeline, output, apart(ROWS))


def _count(parallelism: int, delivery: str) -> Built:
    pipeline = Pipeline("p")
    return out(pipeline, unordered(pipeline).count("x", parallelism=parallelism, delivery=delivery), apart(ROWS))


def arrow(pipeline: Pipeline) -> Any:
    """A source of vectors."""
    return pipeline.source("in", ArrowSource(lambda partition, start, stop: {}, count=0))


def _vectors(method: str) -> Callable[..., Built]:
    def build(column: str, parallelism: int) -> Built:
        pipeline = Pipeline("p")
        output = getattr(arrow(pipeline).key_by("k"), method)("x", column, parallelism=parallelism)
        return out(pipeline, output.to_rows("rows"), [{"k": r["k"], "v": r["v"], "at": int(r["at"])} for r in ROWS])

    return build


def _map_batches(fn: Any) -> Built:
    pipeline = Pipeline("p")
    return out(pipeline, arrow(pipeline).map_batches("x", fn).to_rows("rows"))


def _to_vectors(schema: Any) -> Built:
    pipeline = Pipeline("p")
    return out(pipeline, from_rows(pipeline).to_vectors("x", schema).to_rows("rows"))


def _window(
    assigner: Any, contents: Any, parallelism: int, trigger: Any, lateness_s: float, delivery: str
) -> Built:  # fmt: skip
    pipeline = Pipeline("p")
    stream = from_rows(pipeline, partitions=2).watermarks("w", time, out_of_order_s=1).key_by(key)
    window = stream.window(
        "x", assigner, contents, parallelism=parallelism, trigger=trigger, lateness_s=lateness_s, delivery=delivery
    )
    window.side("late").sink("late", AnySink())
    return out(pipeline, window, apart(ROWS))


# Joins.


def sides(pipeline: Pipeline) -> tuple[Any, Any]:
    """Two keyed streams."""
    left, right = (
        from_rows(pipeline, name).watermarks(f"{name}-w", time, out_of_order_s=50) for name in ("in", "other")
    )
    return left.key_by(key), right.key_by(key)


OTHERS = [row("a", 2, 10), row("b", 30, 20), row("c", 3, 30)]


def pair(left: Any, right: Any) -> Any:
    """A record of two."""
    return [left and left["v"], right and right["v"]]


def _join(other: str, within: Any, how: str, fn: Any, parallelism: int) -> Built:
    pipeline = Pipeline("p")
    left, right = sides(pipeline)
    partner = right if other == "other" else left
    if other == "self":
        right.sink("unused", AnySink())
    joined = left.join("x", partner, within=within, how=how, fn=fn, parallelism=parallelism)
    return out(pipeline, joined, other=OTHERS)


def _window_join(other: str, assigner: Any, how: str, fn: Any, parallelism: int) -> Built:
    pipeline = Pipeline("p")
    left, right = sides(pipeline)
    partner = right if other == "other" else left
    if other == "self":
        right.sink("unused", AnySink())
    return out(
        pipeline, left.window_join("x", partner, assigner, how=how, fn=fn, parallelism=parallelism), other=OTHERS
    )


def _join_table(table: str, fn: Any, how: str, wait: bool, parallelism: int, **more: Any) -> Built:
    pipeline = Pipeline("p")
    left, right = sides(pipeline)
    sums: Aggregate[Any, Any] = Aggregate(dict, lambda total, r: {"v": total.get("v", 0) + r["v"] + 1, "at": r["at"]})
    rows: Table[Any, Any] = right.table("t") if table == "latest" else right.aggregate_table("t", sums)
    joined = left.join_table("x", rows, fn=fn, how=how, wait=wait, parallelism=parallelism, **more)
    return out(
        pipeline, joined, [At(50, each) for each in [*ROWS, row("d", 41, 5)]], other=[*OTHERS, At(60, row("a", 60, 70))]
    )


class Ruled(BroadcastOperator):
    """Shows the rules that it knows."""

    def process(self, record: Any, ctx: Any) -> Any:
        yield record["v"], dict(ctx.broadcast)

    def process_broadcast(self, record: Any, ctx: Any) -> Any:
        ctx.broadcast[record["k"]] = record["v"]


class RuledOtherwise(Ruled):
    """The same, and it shows."""

    def process(self, record: Any, ctx: Any) -> Any:
        yield "other", record["v"]


def _broadcast(rules: str, operator: Any, wait: bool, parallelism: int) -> Built:
    pipeline = Pipeline("p")
    right = from_rows(pipeline, "other")
    chosen = right if rules == "all" else right.filter("some", lambda r: r["k"] != "a")
    output = from_rows(pipeline).key_by(key).broadcast("x", chosen, operator, wait=wait, parallelism=parallelism)
    late = [At(60, row("a", 60, 70))]
    return out(pipeline, output, [At(50, each) for each in ROWS], other=[*OTHERS, *late])


def asked(record: Row, idempotency_key: str) -> int:
    """An answer."""
    return int(record["v"]) * 2


def asked_otherwise(record: Row, idempotency_key: str) -> int:
    """Another answer."""
    return int(record["v"]) * 3


class Flaky:
    """Fails once per record."""

    def __init__(self) -> None:
        self.tried: set[str] = set()

    def __call__(self, record: Row, idempotency_key: str) -> int:
        if idempotency_key not in self.tried:
            self.tried.add(idempotency_key)
            raise ValueError("once")
        return 1


def _call(fn: Any, combine: Any, order: str, retries: int, parallelism: int) -> Built:
    pipeline = Pipeline("p")
    fails = Flaky() if fn == "flaky" else {"two": asked, "three": asked_otherwise}[fn]
    output = from_rows(pipeline).key_by(key).call(
        "x", fails, combine=combine, order=order, retries=retries, backoff_s=0.0, parallelism=parallelism
    )  # fmt: skip
    return out(pipeline, output)


# Tables.


def people(pipeline: Pipeline, name: str = "in") -> Any:
    """A table."""
    return from_rows(pipeline, name).key_by(lambda r: (r["k"], r["v"] % 2)).table(f"{name}-t")


def _table_method(method: str, *arguments: str) -> Callable[..., Built]:
    def build(**options: Any) -> Built:
        pipeline = Pipeline("p")
        output = getattr(people(pipeline), method)("x", **options)
        if method == "group_by":
            output = output.aggregate("n", Count())
        return out(pipeline, output if method == "to_stream" else output.revisions("rows"))

    return build


def _table_join(other: str, fn: Any, how: str, parallelism: int) -> Built:
    pipeline = Pipeline("p")
    left, right = people(pipeline), people(pipeline, "other")
    chosen = right if other == "all" else right.filter("some", lambda key, r: key[0] != "a")
    output = left.join("x", chosen, fn=fn, how=how, parallelism=parallelism)
    return out(pipeline, output.revisions("rows"), other=OTHERS)


def _suppress(after_s: Any, keys_max: Any, parallelism: int) -> Built:
    pipeline = Pipeline("p")
    stream = from_rows(pipeline).watermarks("w", time).key_by(lambda r: (r["k"], r["v"] % 2))
    output = stream.aggregate_table("t", Count()).suppress(
        "x", after_s=after_s, keys_max=keys_max, parallelism=parallelism
    )
    at_once = [row(k, 41, v) for k in "abcd" for v in (1, 2)]
    return out(pipeline, output.revisions("rows"), [*ROWS, *at_once, row("a", 80, 1)])


def _suppress_until(until: Any) -> Built:
    pipeline = Pipeline("p")
    counts = from_rows(pipeline).timed(time).key_by(key).window_table("t", Tumbling(5), Count(), grace_s=30)
    output = counts.suppress("x", until=until) if until else counts.suppress("x", after_s=1)
    return out(pipeline, output.revisions("rows"))


def _table(parallelism: int) -> Built:
    pipeline = Pipeline("p")
    return out(pipeline, from_rows(pipeline).key_by(key).table("x", parallelism=parallelism).revisions("rows"))


def _aggregate_table(aggregate: Any, parallelism: int) -> Built:
    pipeline = Pipeline("p")
    output = from_rows(pipeline).key_by(key).aggregate_table("x", aggregate, parallelism=parallelism)
    return out(pipeline, output.revisions("rows"))


def _groups(aggregate: Any, parallelism: int) -> Built:
    pipeline = Pipeline("p")
    output = people(pipeline).group_by("g", lambda key, r: r["k"]).aggregate("x", aggregate, parallelism=parallelism)
    return out(pipeline, output.revisions("rows"))


def _window_table(assigner: Any, aggregate: Any, grace_s: float, parallelism: int) -> Built:
    pipeline = Pipeline("p")
    keyed = from_rows(pipeline).timed(time).key_by(key)
    output = keyed.window_table("x", assigner, aggregate, grace_s=grace_s, parallelism=parallelism)
    output.side("late").sink("late", AnySink())
    return out(pipeline, output.revisions("rows"))


def _table_side(tag: str) -> Built:
    pipeline = Pipeline("p")
    counts = from_rows(pipeline).timed(time).key_by(key).window_table("t", Tumbling(5), Count())
    counts.revisions("rows").sink("all", AnySink())
    return out(pipeline, counts.side(tag))


def doubled(values: Any, record: Any) -> Any:
    """A function of `reduce`."""
    return [*values, record["v"]]


def doubled_otherwise(values: Any, record: Any) -> Any:
    """Another one."""
    return [*values, -record["v"]]


TWO = (1, 2)
ELSEWHERE = "tests/unit/operators/test_asking.py, with real threads"
STREAM_CASES = [
    Case(Pipeline.source, {
        "source": (GeneratedSource(lambda p, i: (p, i), 3, 2), GeneratedSource(lambda p, i: (p, i), 4, 2)),
        "parallelism": TWO,
    }, _source),
    Case(Stream.map, {"fn": (key, value)}, _per_record("map")),
    Case(Stream.filter, {"fn": (lambda r: r["v"] > 3, lambda r: r["v"] < 3)}, _per_record("filter")),
    Case(Stream.flat_map, {"fn": (lambda r: [r], lambda r: [r, r])}, _per_record("flat_map")),
    Case(Stream.key_by, {"fn": (key, value)}, _key_by),
    Case(Stream.union, {"streams": ("x", "xx")}, _union),
    Case(Stream.side, {"tag": ("tag0", "tag1")}, _side),
    Case(Stream.timed, {"time": (time, lambda r: r["at"] + 1)}, _timed),
    Case(Stream.sink, {"sink": (AnySink(), Refusing()), "parallelism": TWO}, _sink,
         without={"host": "the job is on one machine"},
         hidden=frozenset({("parallelism", "sink")})),
    Case(Stream.watermarks, {
        "time": (time, lambda r: r["at"] * 2),
        "out_of_order_s": (0.0, 2.0),
        "idle_after_s": (None, 30.0),
        "generator": (None, Farther),
    }, _watermarks, hidden=frozenset({("out_of_order_s", "generator"), ("idle_after_s", "generator")})),
    Case(Stream.process, {
        "operator": (Runs(), RunsOtherwise()),
        "parallelism": TWO,
        "delivery": ("arrival", "ordered"),
        "state": ("memory", "disk"),
    }, _process),
    Case(KeyedStream.reduce, {
        "fn": (doubled, doubled_otherwise), "initial": ([], [0]), "parallelism": TWO,
        "delivery": ("arrival", "ordered"),
    }, _reduce),
    Case(KeyedStream.count, {"parallelism": TWO, "delivery": ("arrival", "ordered")}, _count),
    *[
        Case(getattr(KeyedStream, name), {"column": ("v", "at"), "parallelism": TWO}, _vectors(name))
        for name in ("sum", "min", "max")
    ],
    Case(Stream.map_batches, {
        "fn": (lambda batch: batch, lambda batch: {"v": pc.add(batch.column("v"), 1)}),
    }, _map_batches),
    Case(Stream.to_rows, {}, _map_batches),
    Case(Stream.to_vectors, {"schema": ({"v": "int64"}, {"v": "int64", "k": "string"})}, _to_vectors),
    Case(Stream.window, {
        "assigner": (Tumbling(6), Sliding(6, 3)),
        "contents": (listed(), records),
        "parallelism": TWO,
        "trigger": (None, every(2)),
        "lateness_s": (0.0, 40.0),
        "delivery": ("arrival", "ordered"),
    }, _window, hidden=frozenset({("lateness_s", "delivery")})),
    Case(KeyedStream.join, {
        "other": ("other", "self"), "within": ((-1, 1), (-5, 30)), "how": ("inner", "outer"), "fn": (None, pair),
        "parallelism": TWO,
    }, _join),
    Case(KeyedStream.window_join, {
        "other": ("other", "self"), "assigner": (Tumbling(5), Sliding(5, 1)), "how": ("inner", "outer"),
        "fn": (None, pair), "parallelism": TWO,
    }, _window_join, hidden=frozenset({("how", "other")})),
    Case(KeyedStream.join_table, {
        "table": ("latest", "sum"), "fn": (None, pair), "how": ("inner", "left"), "wait": (False, True),
        "as_of": (False, True), "parallelism": TWO,
    }, _join_table, hidden=frozenset({("wait", "as_of"), ("as_of", "wait")})),
    Case(Stream.broadcast, {
        "rules": ("all", "some"), "operator": (Ruled(), RuledOtherwise()), "wait": (False, True), "parallelism": TWO,
    }, _broadcast, hidden=frozenset({("rules", "operator"), ("wait", "rules")})),
    Case(Stream.call, {
        "fn": ("two", "three"), "combine": (None, lambda record, answer: answer), "order": ("input", "completion"),
        "retries": (0, 1), "parallelism": TWO,
    }, _call, without={
        "concurrency": ELSEWHERE, "timeout_s": ELSEWHERE, "backoff_s": ELSEWHERE, "order": ELSEWHERE,
        "retries": "the next case",
    }),
    Case(Stream.call, {"retries": (0, 1)}, lambda retries: _call("flaky", None, "input", retries, 1),
         without=dict.fromkeys(("fn", "combine", "order", "parallelism", "concurrency", "timeout_s", "backoff_s"),
                               "the case before")),
    Case(KeyedStream.table, {"parallelism": TWO}, _table),
    Case(KeyedStream.aggregate_table, {"aggregate": (Count(), Sum(value)), "parallelism": TWO}, _aggregate_table),
    Case(KeyedStream.window_table, {
        "assigner": (Tumbling(5), Sliding(5, 1)), "aggregate": (Count(), Sum(value)), "grace_s": (0.0, 9.0),
        "parallelism": TWO,
    }, _window_table),
]  # fmt: skip
TABLE_CASES = [
    Case(Table.filter, {"fn": (lambda k, r: r["v"] > 3, lambda k, r: r["v"] < 3)}, _table_method("filter")),
    Case(Table.map_values, {"fn": (lambda k, r: r["v"], lambda k, r: r["at"])}, _table_method("map_values")),
    Case(Table.group_by, {"fn": (lambda k, r: k[0], lambda k, r: k[1])}, _table_method("group_by")),
    Case(Table.to_stream, {"fn": (None, lambda k, r: r)}, _table_method("to_stream")),
    Case(Table.revisions, {}, _table_method("revisions")),
    Case(Table.join, {
        "other": ("all", "some"), "fn": (None, pair), "how": ("inner", "outer"), "parallelism": TWO,
    }, _table_join),
    Case(Table.suppress, {"after_s": (5.0, 12.0), "keys_max": (None, 1), "parallelism": TWO}, _suppress,
         hidden=frozenset({("after_s", "keys_max")}),
         without={"until": "the next case"}),
    Case(Table.suppress, {"until": ("closed", None)}, _suppress_until,
         without=dict.fromkeys(("after_s", "keys_max", "parallelism"), "the case before")),
    Case(Table.side, {"tag": ("late", "no such tag")}, _table_side),
    Case(Grouped.aggregate, {"aggregate": (Count(), Sum(value)), "parallelism": TWO}, _groups),
]  # fmt: skip
