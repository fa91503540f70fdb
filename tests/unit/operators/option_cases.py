"""Witnesses of every option of every operator: two values of it whose rows must differ in a small pipeline.

A `Case` is one callable of the public API.  `build` takes a value for each of its parameters, and makes a stream in
whose pipeline every one of them matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from operators import Aggregate, BroadcastOperator, Count, Operator, Pipeline, Sliding, Sum, Tumbling, every
from operators.builder.pipeline import Grouped, KeyedStream, Stream, Table
from operators.kinds.eventtime.watermarks import WatermarkGenerator
from operators.sources import ArrowSource, GeneratedSource
from operators.testing import At
from tests.oracles.frame import AnySink, AnyTableSink, NoSink, source

Row = dict[str, Any]
Built = tuple[Pipeline, Mapping[str, Any]]
Values = Mapping[str, tuple[Any, Any]]


def row(k: str, at: float, v: int) -> Row:
    return {"k": k, "at": at, "v": v}


ROWS = [
    row("a", 1, 1), row("b", 2, 2), row("a", 4, 5), row("a", 3, 7), row("b", 9, 4), row("a", 5, 2), row("b", 7, 8),
    row("a", 20, 1), row("b", 21, 6), row("a", 22, 3), row("b", 19, 9), row("a", 40, 4), row("b", 12, 1),
]  # fmt: skip
OTHERS = [row("a", 2, 10), row("b", 30, 20), row("c", 3, 30)]
LATE = At(60, row("a", 60, 70))
APART = [ROWS[::2], ROWS[1::2]]
"""The records of two partitions."""
BY_THE_CLOCK = [At(100.75 + number, each) for number, each in enumerate(ROWS)]
"""One after the other by the wall clock."""


def key(record: Row) -> Any:
    return record["k"]


def time(record: Row) -> Any:
    return record["at"]


def value(record: Row) -> Any:
    return record["v"]


def itself(record: Any) -> Any:
    return record


class Draft:
    """The pipeline of a case while it is built.

    Attributes:
        inputs: the records of each source.
    """

    def __init__(self) -> None:
        self.pipeline = Pipeline("p")
        self.inputs: dict[str, Any] = {}

    def rows(self, name: str = "in", inputs: Any = ROWS) -> Any:
        self.inputs[name] = inputs
        return source(self.pipeline, name, 2 if isinstance(inputs[0], list) else 1)

    def timed(self, inputs: Any = ROWS, name: str = "in", **options: Any) -> Any:
        return self.rows(name, inputs).watermarks(f"{name}-time", time, **options)

    def keyed(self, inputs: Any = ROWS, name: str = "in", **options: Any) -> Any:
        return self.timed(inputs, name, **options).key_by(key)

    def dated(self) -> Any:
        """A keyed stream of records that have a time of their own."""
        return self.rows().timed(time).key_by(key)

    def unordered(self) -> Any:
        """A keyed stream of two partitions, of which nothing is late."""
        return self.keyed(APART, out_of_order_s=100)

    def sides(self, other: str, inputs: Any = ROWS, others: Any = OTHERS) -> tuple[Any, Any]:
        """Two keyed streams, or one of them twice."""
        left, right = self.keyed(inputs, out_of_order_s=50), self.keyed(others, "other", out_of_order_s=50)
        if other == "self":
            right.sink("unused", AnySink())
        return left, left if other == "self" else right

    def people(self, name: str = "in", inputs: Any = ROWS) -> Any:
        """A table."""
        return self.rows(name, inputs).key_by(lambda r: (r["k"], r["v"] % 2)).table(f"{name}-t")

    def vectors(self) -> Any:
        self.inputs["in"] = [{**each, "at": int(each["at"])} for each in ROWS]
        return self.pipeline.source("in", ArrowSource(lambda partition, start, stop: {}, count=0))

    def late(self, window: Any) -> Any:
        """The window, with another sink for what comes late."""
        window.side("late").sink("late", AnySink())
        return window


@dataclass(frozen=True)
class Case:
    """One callable.

    Attributes:
        options: parameter → its two values; the first is (or acts as) the default.
        build: the stream or table that goes to the sink, of a draft and a value for each option and each of `beside`.
        beside: what else is varied, as it could make an option be ignored.
        hidden: (option, what makes it not matter), because the documentation says so.
        without: parameters that no scenario can show, and why.
    """

    of: Callable[..., Any]
    options: Values
    build: Callable[..., Any]
    beside: Values = field(default_factory=dict)
    hidden: frozenset[tuple[str, str]] = frozenset()
    without: Mapping[str, str] = field(default_factory=dict)

    def built(self, options: Mapping[str, Any]) -> Built:
        """Return the pipeline and its inputs, of a value for each option and each of `beside`."""
        draft = Draft()
        stream = self.build(draft, **options)
        stream = stream.revisions("rows") if isinstance(stream, Table) else stream
        if not isinstance(stream, Pipeline):
            stream.sink("out", AnySink())
        return draft.pipeline, draft.inputs


def records(key: Any, rows: list[Row], window: Any) -> Any:
    """A function of a window."""
    yield key, "function", [each["v"] for each in rows], window.start, window.end


def listed() -> Aggregate[Any, Any]:
    """An aggregate that minds order."""
    return Aggregate(list, lambda values, r: [*values, r["v"]], merge=lambda first, second: first + second)


def pair(left: Any, right: Any) -> Any:
    return [left and left["v"], right and right["v"]]


class Asides(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        ctx.aside(f"tag{record['v'] % 2}", record)


class Refusing(NoSink):
    """Takes nothing."""

    def encode(self, records: Any) -> bytes:
        raise TypeError("refused")


class RefusingTables(Refusing):
    """Takes no table."""

    upsert = True


class Farther(WatermarkGenerator):
    """A watermark far ahead of the records."""

    def on_batch(self, times_ns: Any) -> Any:
        return max(times_ns) + 10 * 10**9


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


class Flaky:
    """Fails once per record."""

    def __init__(self) -> None:
        self.tried: set[str] = set()

    def __call__(self, record: Row, idempotency_key: str) -> int:
        if idempotency_key not in self.tried:
            self.tried.add(idempotency_key)
            raise ValueError("once")
        return 1


def _watermarks(draft: Draft, **options: Any) -> Any:
    rows = draft.rows("in", [[*BY_THE_CLOCK[:6], At(600, row("a", 10, 1))], [row("a", 30, 1), At(1000)]])
    return draft.late(rows.watermarks("w", **options).window("x", Tumbling(2), Count(), parallelism=1))


def _window(draft: Draft, **options: Any) -> Any:
    return draft.late(draft.keyed(APART, out_of_order_s=1).window("x", **options))


def _vectors(method: str) -> Callable[..., Any]:
    return lambda draft, **options: getattr(draft.vectors().key_by("k"), method)("x", **options).to_rows("rows")


def _join(method: str) -> Callable[..., Any]:
    def build(draft: Draft, other: str, **options: Any) -> Any:
        left, right = draft.sides(other)
        return getattr(left, method)("x", right, **options)

    return build


def _late_join(method: str, near: Any) -> Callable[..., Any]:
    """A join with records that are late, but for grace."""
    return lambda draft, **options: draft.late(
        getattr(draft.keyed(), method)("x", draft.keyed(ROWS, "other"), near, **options)
    )


def _join_table(draft: Draft, table: str, **options: Any) -> Any:
    left, right = draft.sides("other", [At(50, each) for each in [*ROWS, row("d", 41, 5)]], [*OTHERS, LATE])
    sums: Aggregate[Any, Any] = Aggregate(dict, lambda total, r: {"v": total.get("v", 0) + r["v"] + 1, "at": r["at"]})
    return left.join_table("x", right.table("t") if table == "latest" else right.aggregate_table("t", sums), **options)


def _broadcast(draft: Draft, rules: str, **options: Any) -> Any:
    right = draft.rows("other", [*OTHERS, LATE])
    chosen = right if rules == "all" else right.filter("some", lambda r: r["k"] != "a")
    return draft.rows("in", [At(50, each) for each in ROWS]).key_by(key).broadcast("x", chosen, **options)


def _call(draft: Draft, fn: Any, **options: Any) -> Any:
    ask = Flaky() if fn == "flaky" else lambda record, idempotency_key: record["v"] * fn
    return draft.rows().key_by(key).call("x", ask, backoff_s=0.0, **options)


def _table(method: str) -> Callable[..., Any]:
    return lambda draft, **options: getattr(draft.people(), method)("x", **options)


def _table_join(draft: Draft, other: str, **options: Any) -> Any:
    left, right = draft.people(), draft.people("other", OTHERS)
    return left.join("x", right if other == "all" else right.filter("some", lambda key, r: key[0] != "a"), **options)


def _suppress(draft: Draft, **options: Any) -> Any:
    at_once = [row(k, 41, v) for k in "abcd" for v in (1, 2)]
    stream = draft.timed([*ROWS, *at_once, row("a", 80, 1)]).key_by(lambda r: (r["k"], r["v"] % 2))
    return stream.aggregate_table("t", Count()).suppress("x", **options)


def _suppress_until(draft: Draft, until: Any) -> Any:
    counts = draft.dated().window_table("t", Tumbling(5), Count(), grace_s=30)
    return counts.suppress("x", until=until) if until else counts.suppress("x", after_s=1)


def _suppress_by_the_clock(draft: Draft, **options: Any) -> Any:
    return draft.keyed(BY_THE_CLOCK).aggregate_table("t", Count()).suppress("x", **options)


def _table_side(draft: Draft, tag: str) -> Any:
    counts = draft.dated().window_table("t", Tumbling(5), Count())
    counts.revisions("rows").sink("all", AnySink())
    return counts.side(tag)


TWO = (1, 2)
ELSEWHERE = "tests/unit/operators/test_asking.py, with real threads"
STREAM_CASES = [
    Case(Pipeline.source, {
        "source": (GeneratedSource(lambda p, i: (p, i), 3, 2), GeneratedSource(lambda p, i: (p, i), 4, 2)),
        "parallelism": TWO,
    }, lambda s, **o: s.pipeline.source("in", **o)),
    Case(Stream.map, {"fn": (key, value)}, lambda s, fn: s.rows().map("x", fn)),
    Case(Stream.filter, {"fn": (lambda r: r["v"] > 3, lambda r: r["v"] < 3)}, lambda s, fn: s.rows().filter("x", fn)),
    Case(Stream.flat_map, {"fn": (lambda r: [r], lambda r: [r, r])}, lambda s, fn: s.rows().flat_map("x", fn)),
    Case(Stream.key_by, {"fn": (key, value)}, lambda s, fn: s.rows().key_by(fn).count("n")),
    Case(Stream.union, {"streams": ("x", "xx")},
         lambda s, streams: s.rows().union(*(s.rows(f"in{number}") for number, _ in enumerate(streams)))),
    Case(Stream.side, {"tag": ("tag0", "tag1")}, lambda s, tag: s.rows().process("x", Asides()).side(tag)),
    Case(Stream.timed, {"time": (time, lambda r: r["at"] + 1)},
         lambda s, time: s.timed().map("m", itself).timed(time).key_by(key).window("x", Tumbling(3), Count())),
    Case(Stream.sink, {"sink": (AnySink(), Refusing()), "parallelism": TWO}, lambda s, **o: s.rows().sink("out", **o),
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
    }, lambda s, **o: s.unordered().process("x", **o)),
    Case(KeyedStream.reduce, {
        "fn": (lambda values, r: [*values, r["v"]], lambda values, r: [*values, -r["v"]]), "initial": ([], [0]),
        "parallelism": TWO, "delivery": ("arrival", "ordered"),
    }, lambda s, **o: s.unordered().reduce("x", **o)),
    Case(KeyedStream.count, {"parallelism": TWO, "delivery": ("arrival", "ordered")},
         lambda s, **o: s.unordered().count("x", **o)),
    *[
        Case(getattr(KeyedStream, name), {"column": ("v", "at"), "parallelism": TWO}, _vectors(name))
        for name in ("sum", "min", "max")
    ],
    Case(Stream.map_batches, {
        "fn": (lambda batch: batch, lambda batch: {"v": pc.add(batch.column("v"), 1)}),
    }, lambda s, fn: s.vectors().map_batches("x", fn).to_rows("rows")),
    Case(Stream.to_rows, {}, lambda s: s.vectors().to_rows("rows")),
    Case(Stream.to_vectors, {"schema": ({"v": "int64"}, {"v": "int64", "k": "string"})},
         lambda s, schema: s.rows().to_vectors("x", schema).to_rows("rows")),
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
    }, _join("join"), without={"grace_s": "a case below"}),
    Case(KeyedStream.window_join, {
        "other": ("other", "self"), "assigner": (Tumbling(5), Sliding(5, 1)), "how": ("inner", "outer"),
        "fn": (None, pair), "parallelism": TWO,
    }, _join("window_join"), without={"grace_s": "a case below"}, hidden=frozenset({("how", "other")})),
    Case(KeyedStream.join_table, {
        "table": ("latest", "sum"), "fn": (None, pair), "how": ("inner", "left"), "wait": (False, True),
        "as_of": (False, True), "parallelism": TWO,
    }, _join_table, hidden=frozenset({("wait", "as_of"), ("as_of", "wait")})),
    Case(Stream.broadcast, {
        "rules": ("all", "some"), "operator": (Ruled(), RuledOtherwise()), "wait": (False, True), "parallelism": TWO,
    }, _broadcast, hidden=frozenset({("rules", "operator"), ("wait", "rules")})),
    Case(Stream.call, {
        "fn": (2, 3), "combine": (None, lambda record, answer: answer), "order": ("input", "completion"),
        "retries": (0, 1), "parallelism": TWO,
    }, _call, without={
        "concurrency": ELSEWHERE, "timeout_s": ELSEWHERE, "backoff_s": ELSEWHERE, "order": ELSEWHERE,
        "retries": "the next case",
    }),
    Case(Stream.call, {"retries": (0, 1)}, lambda s, retries: _call(s, "flaky", retries=retries, parallelism=1),
         without=dict.fromkeys(("fn", "combine", "order", "parallelism", "concurrency", "timeout_s", "backoff_s"),
                               "the case before")),
    Case(KeyedStream.table, {"parallelism": TWO}, lambda s, **o: s.rows().key_by(key).table("x", **o)),
    Case(KeyedStream.aggregate_table, {"aggregate": (Count(), Sum(value)), "parallelism": TWO},
         lambda s, **o: s.rows().key_by(key).aggregate_table("x", **o)),
    Case(KeyedStream.window_table, {
        "assigner": (Tumbling(5), Sliding(5, 1)), "aggregate": (Count(), Sum(value)), "grace_s": (0.0, 9.0),
        "parallelism": TWO,
    }, lambda s, **o: s.late(s.dated().window_table("x", **o))),
    Case(KeyedStream.join, {"grace_s": (0.0, 60.0)}, _late_join("join", (-5, 30)),
         without=dict.fromkeys(("other", "within", "how", "fn", "parallelism"), "a case above")),
    Case(KeyedStream.window_join, {"grace_s": (0.0, 60.0)}, _late_join("window_join", Tumbling(5)),
         without=dict.fromkeys(("other", "assigner", "how", "fn", "parallelism"), "a case above")),
]  # fmt: skip
TABLE_CASES = [
    Case(Table.filter, {"fn": (lambda k, r: r["v"] > 3, lambda k, r: r["v"] < 3)}, _table("filter")),
    Case(Table.map_values, {"fn": (lambda k, r: r["v"], lambda k, r: r["at"])}, _table("map_values")),
    Case(Table.group_by, {"fn": (lambda k, r: k[0], lambda k, r: k[1])},
         lambda s, fn: s.people().group_by("x", fn).aggregate("n", Count())),
    Case(Table.to_stream, {"fn": (None, lambda k, r: r)}, _table("to_stream")),
    Case(Table.revisions, {}, _table("revisions")),
    Case(Table.join, {
        "other": ("all", "some"), "fn": (None, pair), "how": ("inner", "outer"), "parallelism": TWO,
    }, _table_join),
    Case(Table.suppress, {"after_s": (5.0, 12.0), "keys_max": (None, 1), "parallelism": TWO}, _suppress,
         hidden=frozenset({("after_s", "keys_max")}),
         without={"until": "the next case", "clock": "the next but one"}),
    Case(Table.suppress, {"until": ("closed", None)}, _suppress_until,
         without=dict.fromkeys(("after_s", "keys_max", "parallelism", "clock"), "the case before or after")),
    Case(Table.suppress, {"after_s": (5.0, 12.0), "clock": ("event", "processing")}, _suppress_by_the_clock,
         without=dict.fromkeys(("until", "keys_max", "parallelism"), "a case before")),
    Case(Table.sink, {"sink": (AnyTableSink(), RefusingTables()), "parallelism": TWO},
         lambda s, **o: s.rows().key_by(key).table("t").sink("out", **o),
         without={"host": "the job is on one machine"}, hidden=frozenset({("parallelism", "sink")})),
    Case(Table.side, {"tag": ("late", "no such tag")}, _table_side),
    Case(Grouped.aggregate, {"aggregate": (Count(), Sum(value)), "parallelism": TWO},
         lambda s, **o: s.people().group_by("g", lambda key, r: r["k"]).aggregate("x", **o)),
]  # fmt: skip
