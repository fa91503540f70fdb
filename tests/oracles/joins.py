"""Joins and rules for all tasks: docs/guide/joins.md.

Watermarks lie so far behind that nothing is late: which of two sources, or partitions, comes first is chance, and must
not matter.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from operators import BroadcastOperator, Pipeline, Sliding, Tumbling
from operators.testing import TrialResult
from tests.oracles.frame import Draw, Mismatch, Scenario, bag, every, exact, oracle, per_key, sink, source
from tests.oracles.windows import aligned, us

Row = dict[str, Any]
HOW = ("inner", "left", "right", "outer")


def side(draw: Draw, name: str) -> list[Row]:
    """Records of one side, each with a name of its own."""
    at: float = draw.randint(-5, 5)
    rows = []
    for number in range(draw.randint(0, 12)):
        at += draw.choice((0, 1, 2, 0.5, 5, -3))
        rows.append({"k": draw.choice("ab"), "at": at, "id": f"{name}{number}"})
    return rows


def pair(left: Row | None, right: Row | None) -> Any:
    """Return the row of a pair, as a join emits it."""
    return [left and left["id"], right and right["id"]]


def paired(how: str, lefts: list[Row], rights: list[Row], fits: Any) -> list[Any]:
    """All pairs that fit, and what has no partner."""
    rows = [pair(a, b) for a in lefts for b in rights if a["k"] == b["k"] and fits(a, b)]
    if how in ("left", "outer"):
        rows += [pair(a, None) for a in lefts if not any(a["k"] == b["k"] and fits(a, b) for b in rights)]
    if how in ("right", "outer"):
        rows += [pair(None, b) for b in rights if not any(a["k"] == b["k"] and fits(a, b) for a in lefts)]
    return rows


def both(draw: Draw, pipeline: Pipeline, grace_s: float = 0) -> tuple[Any, Any, dict[str, list[list[Row]]]]:
    """Two keyed streams with event time, and their records, which come within bound and grace, by partition."""
    streams, inputs = [], {}
    for name in ("left", "right"):
        rows, partitions = side(draw, name[0]), draw.choice((1, 1, 2))
        inputs[name] = [rows[place::partitions] for place in range(partitions)]
        behind_s = max(
            (rows[place]["at"] - row["at"] for number, row in enumerate(rows) for place in range(number)), default=0
        )
        stream = source(pipeline, name, partitions, parallelism=draw.choice((1, partitions)))
        stream = stream.watermarks(
            f"{name}-time", lambda r: r["at"], out_of_order_s=max(behind_s - grace_s, draw.choice((0, 0, 1000)))
        )
        streams.append(stream.key_by(lambda r: r["k"]))
    return streams[0], streams[1], inputs


def listed(inputs: dict[str, list[list[Row]]], name: str) -> list[Row]:
    """Return the records of all partitions of a source."""
    return [row for rows in inputs[name] for row in rows]


@oracle("join")
def _join(draw: Draw) -> Scenario:
    """Every pair that is near enough once; what has no partner as `how` says."""
    pipeline, how = Pipeline("p"), draw.choice(HOW)
    grace_s = draw.choice((0, 0, 2, 1000))
    left, right, inputs = both(draw, pipeline, grace_s)
    before = draw.choice((-3, -1, 0, 1, 2))
    within = (before, before + draw.choice((0, 1, 2.5, 6)))
    fn = draw.choice((pair, None))
    sink(left.join("j", right, within=within, how=how, parallelism=draw.choice((1, 2)), fn=fn, grace_s=grace_s))
    lefts, rights = listed(inputs, "left"), listed(inputs, "right")

    def near(a: Row, b: Row) -> bool:
        return us(within[0]) <= us(b["at"]) - us(a["at"]) <= us(within[1])

    expected = paired(how, lefts, rights, near)
    if fn is None:
        known = {row["id"]: row for row in [*lefts, *rights]}
        expected = [tuple(each and known[each] for each in row) for row in expected]
    return Scenario(pipeline, inputs, bag("out", expected), shown=f"{how} {within} grace {grace_s}")


@oracle("join-late")
def _late(draw: Draw) -> Scenario:
    """One stream joined with itself: what is late is put aside and joined with nothing, not even itself."""
    pipeline, bound = Pipeline("p"), draw.choice((0, 2, 4))
    rows = side(draw, "x")
    keyed = source(pipeline).watermarks("time", lambda r: r["at"], out_of_order_s=bound).key_by(lambda r: r["k"])
    within = (draw.choice((-2, 0)), draw.choice((0, 3)))
    joined = keyed.join("j", keyed, within=within, fn=pair)
    sink(joined)
    sink(joined.side("late"), "late")
    largest: float | None = None
    intime: list[Row] = []
    late: list[Row] = []
    for row in rows:
        (intime if largest is None or row["at"] >= largest - bound else late).append(row)
        largest = row["at"] if largest is None else max(largest, row["at"])

    def near(a: Row, b: Row) -> bool:
        return us(within[0]) <= us(b["at"]) - us(a["at"]) <= us(within[1])

    sure, possible = (Counter(map(repr, paired("inner", each, each, near))) for each in (intime, rows))
    most = Counter(map(repr, late * 2))

    def check(result: TrialResult) -> None:
        # How far the other input is decides which of the late ones come in time: that is chance.
        joined, aside = Counter(map(repr, result["out"])), Counter(map(repr, result["late"]))
        if (
            sure - joined
            or joined - possible
            or aside - most
            or result.counts.get("j", {}).get("late", 0) != aside.total()
        ):
            raise Mismatch(f"{result['out']}, late {result['late']}, sure {sure}, late at most {most}")

    return Scenario(pipeline, {"in": rows}, check)


@oracle("window-join")
def _window_join(draw: Draw) -> Scenario:
    """Every pair of records in one window, once per window that they share; alone per window as `how` says."""
    pipeline, how = Pipeline("p"), draw.choice(HOW)
    grace_s = draw.choice((0, 0, 2, 1000))
    left, right, inputs = both(draw, pipeline, grace_s)
    size, offset = draw.choice((2, 3.5, 8)), draw.choice((0, 1, -0.5))
    step = draw.choice((1, 2)) if draw.flip() else size
    assigner: Any = Tumbling(size, offset_s=offset) if step == size else Sliding(size, step, offset_s=offset)
    sink(left.window_join("j", right, assigner, how=how, fn=pair, parallelism=draw.choice((1, 2)), grace_s=grace_s))
    lefts, rights = listed(inputs, "left"), listed(inputs, "right")
    windows: dict[Any, tuple[list[Row], list[Row]]] = {}
    for place, rows in enumerate((lefts, rights)):
        for row in rows:
            for window in aligned(row["at"], size, step, offset):
                windows.setdefault((window, row["k"]), ([], []))[place].append(row)
    expected = [row for a, b in windows.values() for row in paired(how, a, b, lambda a, b: True)]
    return Scenario(pipeline, inputs, bag("out", expected), shown=f"{how} {vars(assigner)}")


@oracle("join-table")
def _join_table(draw: Draw) -> Scenario:
    """A table joined with `wait`: each record sees the last row of its key, or nothing, or None, if there is none."""
    pipeline = Pipeline("p")
    how: Literal["inner", "left"] = draw.choice(("inner", "left"))
    table = source(pipeline, "rows").key_by(lambda r: r["k"]).table("t")
    stream = source(pipeline, "in").key_by(lambda r: r["k"])
    sink(stream.join_table("j", table, how=how, wait=True, fn=pair, parallelism=draw.choice((1, 2))))
    rows, records = side(draw, "t"), side(draw, "x")
    last = {row["k"]: row for row in rows}
    expected = [pair(r, last.get(r["k"])) for r in records if r["k"] in last or how == "left"]
    keys = {record["id"]: record["k"] for record in records}
    return Scenario(pipeline, {"rows": rows, "in": records}, per_key("out", expected, lambda row: keys[row[0]]))


@oracle("join-as-of")
def _join_as_of(draw: Draw) -> Scenario:
    """A table joined `as_of`, or with `wait` where rows have times: each record sees the row of its own time."""
    pipeline, bounds = Pipeline("p"), (draw.choice((0, 4)), draw.choice((0, 9)))
    how: Literal["inner", "left"] = draw.choice(("inner", "left"))
    partitions = 1 if draw.flip() else 2
    streams = [
        source(pipeline, name, partitions).watermarks(f"{name}-time", lambda r: r["at"], out_of_order_s=bound)
        for name, bound in zip(("in", "rows"), bounds, strict=True)
    ]
    table = streams[1].key_by(lambda r: r["k"]).table("t")
    deleting = draw.flip()
    if deleting:  # a row that is filtered is none from then on
        table = table.filter("there", lambda key, row: row["v"] % 3)
    options = draw.choice(({"as_of": True}, {"wait": True}, {"as_of": True, "wait": True}))
    joined = streams[0].key_by(lambda r: r["k"]).join_table(
        "j", table, how=how, fn=lambda r, row: [r["v"], row and row["v"]], parallelism=draw.choice((1, 2)), **options
    )  # fmt: skip
    sink(joined)
    sink(joined.side("late"), "late")

    def timed(bound: float, count: int) -> list[Row]:
        """Draw records that are not late; where there are several partitions, no two have one time."""
        times = draw.sample(range(80), count) if partitions > 1 else [draw.randint(0, 25) for _ in range(count)]
        rows = [{"k": draw.choice(["a", 0, (1, "x")]), "at": at / 2, "v": v} for v, at in enumerate(times)]
        return sorted(rows, key=lambda row: row["at"] + draw.random() * bound)

    records, rows = timed(bounds[0], draw.randint(0, 20)), timed(bounds[1], draw.randint(0, 20))
    expected = []
    for record in records:
        valid = [row for row in rows if row["k"] == record["k"] and row["at"] <= record["at"]]
        last = max(valid, key=lambda row: row["at"] + rows.index(row) / 1000) if valid else None
        value = last["v"] if last is not None and (last["v"] % 3 or not deleting) else None
        if value is not None or how == "left":
            expected.append([record["v"], value])

    def in_time(result: TrialResult) -> None:
        if "late_rows" in result.counts.get("j", {}):
            raise Mismatch(f"late rows: {result.counts}")

    inputs = {name: [each[place::partitions] for place in range(partitions)] for name, each in
              (("in", records), ("rows", rows))}  # fmt: skip
    return Scenario(pipeline, inputs, every(bag("out", expected), exact("late", []), in_time))


class Ruled(BroadcastOperator):
    """Numbers the records of a key, and shows the rules."""

    def process(self, record: Row, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield [record["id"], n, dict(ctx.broadcast)]

    def process_broadcast(self, rule: Row, ctx: Any) -> Any:
        if rule["at"] < 0:
            ctx.broadcast.pop(rule["k"], None)
        else:
            ctx.broadcast.setdefault(rule["k"], []).append(rule["id"])
        yield [rule["id"], list(ctx.broadcast)]


@oracle("broadcast")
def _broadcast(draw: Draw) -> Scenario:
    """A broadcast with `wait`: all rules come first, in every task, and are iterated over in key order."""
    pipeline, width = Pipeline("p"), draw.choice((1, 2, 3))
    stream = source(pipeline).key_by(lambda r: r["k"])
    sink(stream.broadcast("b", source(pipeline, "rules"), Ruled(), wait=True, parallelism=width))
    rules, records = side(draw, "r"), side(draw, "x")
    rule_ids: dict[str, list[str]] = {}
    expected: list[Any] = []
    for rule in rules:
        if rule["at"] < 0:
            rule_ids.pop(rule["k"], None)
        else:
            rule_ids.setdefault(rule["k"], []).append(rule["id"])
        expected += [[rule["id"], sorted(rule_ids)]] * width
    counts: dict[str, int] = {}
    for record in records:
        counts[record["k"]] = counts.get(record["k"], 0) + 1
        expected.append([record["id"], counts[record["k"]], {key: rule_ids[key] for key in sorted(rule_ids)}])
    return Scenario(pipeline, {"rules": rules, "in": records}, bag("out", expected))
