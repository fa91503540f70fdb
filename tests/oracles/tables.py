"""Tables and their revisions: docs/guide/tables.md.

Two things are checked of every table: a revision says what was sent before it, and what stands in the end is what a
batch over the same records gives.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import Any

from operators import Aggregate, Count, Max, Mean, Min, Pipeline, Session, Sliding, Sum, Tumbling
from operators.testing import TrialResult
from tests.oracles.frame import Check, Draw, Mismatch, Scenario, counted, every, exact, oracle, same, sink, source
from tests.oracles.windows import aligned, marks, us

Row = dict[str, Any]
VALUES = (0, 1, 2, 3, 7)


def rows(draw: Draw) -> list[Any]:
    """Records of four keys; the later ones replace the earlier."""
    return draw.listed(30, lambda: {"id": draw.randint(0, 3), "g": draw.choice("xy"), "v": draw.choice(VALUES)})


def table(expected: dict[Any, Any], name: str = "out") -> Check:
    """Return a check for revisions that chain, and amount to these rows."""

    def check(result: TrialResult) -> None:
        rows: dict[Any, Any] = {}
        for key, old, new in result[name]:
            same(f"{name}, what {key!r} was", [old], [rows.pop(key, None)])
            if old is None and new is None:
                raise Mismatch(f"{name}: a revision of {key!r} from nothing to nothing")
            if new is not None:
                rows[key] = new
        same(name, sorted(rows.items(), key=repr), sorted(expected.items(), key=repr))

    return check


def aggregate(draw: Draw) -> tuple[Any, Callable[[list[Any]], Any]]:
    """Draw (an aggregate of the field `v` that can subtract, the function of a list of rows that it computes)."""

    def of(row: Row) -> int:
        return int(row["v"])

    def values(rows: list[Row]) -> list[int]:
        return [row["v"] for row in rows]

    def less(numbers: list[int], row: Row) -> list[int]:
        numbers.remove(row["v"])
        return numbers

    def more(numbers: list[int], row: Row) -> list[int]:
        numbers.append(row["v"])
        return numbers

    return draw.choice(
        [
            (Count(), len),
            (Sum(of), lambda rows: sum(values(rows))),
            (Min(of), lambda rows: min(values(rows))),
            (Max(of), lambda rows: max(values(rows))),
            (Mean(of), lambda rows: sum(values(rows)) / len(rows)),
            (Aggregate(list, more, result=sorted, merge=add, subtract=less), lambda rows: sorted(values(rows))),
        ]
    )


def latest(rows: list[Row]) -> dict[int, Row]:
    """Return the last row of each key."""
    return {row["id"]: row for row in rows}


@oracle("table")
def _table(draw: Draw) -> Scenario:
    """`table`, `filter`, `map_values`: one revision for each change of a value, types included; None deletes."""
    pipeline = Pipeline("p")
    values = [None, 0, False, 0.0, 1, True, 1.0, [1], [True], (1,), {"a": 0}, {"a": False}, "s", -0.0]
    records: list[list[Any]] = draw.listed(30, lambda: [draw.randint(0, 2), draw.choice(values)])
    valued = source(pipeline).key_by(lambda r: r[0]).table("t").map_values("value", lambda key, r: r[1])
    sink(valued.revisions("rows"))
    kept = valued.filter("kept", lambda key, value: bool(value))
    sink(kept.to_stream("stream", lambda key, value: [key, value]), "some")
    standing: dict[int, Any] = {}
    expected, some, changes = [], [], dict[int, Any]()
    for key, value in records:
        old = standing.get(key)
        if repr(old) != repr(value):
            expected.append((key, old, value))
            before = changes.get(key)
            after = value if value else None
            if repr(before) != repr(after):
                some.append([key, after])
                changes[key] = after
        standing[key] = value
    return Scenario(pipeline, {"in": [records]}, every(exact("out", expected), exact("some", some)))


@oracle("groups")
def _groups(draw: Draw) -> Scenario:
    """`group_by(…).aggregate`: a row per group out of the values that are in it now."""
    pipeline, records = Pipeline("p"), rows(draw)
    aggregation, judge = aggregate(draw)
    people = source(pipeline).key_by(lambda r: r["id"]).table("t").filter("f", lambda key, row: row["v"] != 7)
    sink(people.group_by("by", lambda key, row: row["g"]).aggregate("n", aggregation).revisions("rows"))
    members: dict[str, list[Row]] = {}
    for row in latest(records).values():
        if row["v"] != 7:
            members.setdefault(row["g"], []).append(row)
    return Scenario(pipeline, {"in": records}, table({group: judge(each) for group, each in members.items()}))


@oracle("aggregate-table")
def _aggregate_table(draw: Draw) -> Scenario:
    """`aggregate_table`: what all records of a key amount to so far, a revision for each change."""
    pipeline, records = Pipeline("p"), rows(draw)
    aggregation, judge = aggregate(draw)
    sink(source(pipeline).key_by(lambda r: r["g"]).aggregate_table("t", aggregation).revisions("rows"))
    members: dict[str, list[Row]] = {}
    expected = []
    for row in records:
        before = members.get(row["g"], [])
        old, new = (judge(before) if before else None), judge([*before, row])
        members[row["g"]] = [*before, row]
        if repr(old) != repr(new):
            expected.append((row["g"], old, new))
    return Scenario(pipeline, {"in": records}, exact("out", expected))


@oracle("table-join")
def _join(draw: Draw) -> Scenario:
    """`table.join`: a row per key that both, this side or either side has."""
    pipeline, how = Pipeline("p"), draw.choice(("inner", "left", "right", "outer"))
    inputs = {name: rows(draw) for name in ("left", "right")}
    sides = {
        name: source(pipeline, name).key_by(lambda r: r["id"]).table(f"{name}-t").filter(
            f"{name}-f", lambda key, row: row["v"] > 0
        )
        for name in inputs
    }  # fmt: skip
    joined = sides["left"].join("j", sides["right"], how=how, fn=lambda a, b: [a and a["v"], b and b["v"]])
    sink(joined.revisions("rows"))
    left, right = ({key: row["v"] for key, row in latest(each).items() if row["v"] > 0} for each in inputs.values())
    keys = {
        "inner": left.keys() & right.keys(), "left": left.keys(), "right": right.keys(),
        "outer": left.keys() | right.keys(),
    }[how]  # fmt: skip
    return Scenario(pipeline, inputs, table({key: [left.get(key), right.get(key)] for key in keys}))


@oracle("window-table")
def _window_table(draw: Draw) -> Scenario:
    """`window_table` with grace, and `suppress` after it: the last row of each window when it is closed."""
    pipeline, grace = Pipeline("p"), draw.choice((0, 0, 2, 7))
    aggregation, judge = aggregate(draw)
    at = 0
    records: list[Row] = []
    for _ in range(draw.randint(0, 25)):
        at += draw.choice((0, 1, 2, -3, -6, 5))
        records.append({"g": draw.choice("xy"), "at": at, "v": draw.choice(VALUES)})
    bound = draw.choice((None, 0, 2))
    stream = source(pipeline)
    stream = stream.timed(lambda r: r["at"]) if bound is None else stream.watermarks(
        "time", lambda r: r["at"], out_of_order_s=bound
    )  # fmt: skip
    size = draw.choice((3, 5))
    step = draw.choice((1, 2, size))
    assigner: Any = Tumbling(size, offset_s=1) if step == size else Sliding(size, step, offset_s=1)
    counts = stream.key_by(lambda r: r["g"]).window_table("w", assigner, aggregation, grace_s=grace, parallelism=1)
    sink(counts.revisions("rows"))
    sink(counts.side("late"), "late")
    sink(counts.suppress("final", until="closed").revisions("final-rows"), "closed")
    after = counts.suppress("less", after_s=draw.choice((0.5, 1, 4)), keys_max=draw.choice((None, 1, 3)))
    sink(after.revisions("less-rows"), "folded")
    by_clock = counts.suppress("clocked", after_s=draw.choice((0.001, 1, 1e9)), clock="processing", parallelism=1)
    sink(by_clock.revisions("clocked-rows"), "slow")
    sink(by_clock.suppress("clocked-final", until="closed").revisions("clocked-final-rows"), "slow-closed")
    windows: dict[Any, list[Row]] = {}
    late = []
    for row, mark in zip(records, marks(records, bound or 0), strict=False):
        opened = aligned(row["at"], size, step, 1)
        if mark is not None and us(row["at"]) < mark - us(grace):
            opened = [window for window in opened if window[1] > mark]
        if not opened:
            late.append(row)
        for start, end in opened:
            windows.setdefault((row["g"], bound_of(start), bound_of(end)), []).append(row)
    final = {key: judge(each) for key, each in windows.items()}
    checks = [table(final), table(final, "closed"), table(final, "folded"), table(final, "slow"), once("closed", final)]
    checks += [table(final, "slow-closed"), once("slow-closed", final)]
    return Scenario(
        pipeline, {"in": records}, every(*checks, exact("late", late), counted("w", {"late": len(late)})),
        shown=f"{vars(assigner)} grace {grace} bound {bound}",
    )  # fmt: skip


@oracle("session-table")
def _session_table(draw: Draw) -> Scenario:
    """`window_table` of sessions: whatever the order of records, the rows that stay are those of sorted records."""
    pipeline, grace, gap = Pipeline("p"), draw.choice((0, 2, 7, 100)), draw.choice((1, 2, 4))
    aggregation, judge = aggregate(draw)
    records: list[Row] = []
    at = 0
    for _ in range(draw.randint(0, 25)):
        at += draw.choice((0, 1, 2, -3, -6, 5))
        records.append({"g": draw.choice("xy"), "at": at, "v": draw.choice(VALUES)})
    bound = draw.choice((None, 0, 2))
    stream = source(pipeline)
    stream = stream.timed(lambda r: r["at"]) if bound is None else stream.watermarks(
        "time", lambda r: r["at"], out_of_order_s=bound
    )  # fmt: skip
    counts = stream.key_by(lambda r: r["g"]).window_table("w", Session(gap), aggregation, grace_s=grace, parallelism=1)
    sink(counts.revisions("rows"))
    sink(counts.side("late"), "late")
    sink(counts.suppress("final", until="closed").revisions("final-rows"), "closed")
    closed: dict[Any, list[Row]] = {}
    opened: dict[str, list[list[Row]]] = {"x": [], "y": []}
    late = []

    def end(session: list[Row]) -> int:
        return us(max(row["at"] for row in session)) + us(gap)

    def close(until: int | None) -> None:
        for key, sessions in opened.items():
            for session in [each for each in sessions if until is None or end(each) <= until]:
                sessions.remove(session)
                closed[key, min(row["at"] for row in session), bound_of(end(session))] = session

    for row, mark in zip(records, marks(records, bound or 0), strict=False):
        if mark is not None:
            close(mark - us(grace))
        sessions, time = opened[row["g"]], us(row["at"])
        reached = [each for each in sessions if us(min(r["at"] for r in each)) < time + us(gap) and time < end(each)]
        joined = [*(each for session in reached for each in session), row]
        if mark is not None and time < mark - us(grace) and end(joined) <= mark:
            late.append(row)
            continue
        opened[row["g"]] = [*(each for each in sessions if each not in reached), joined]
    close(None)
    final = {key: judge(each) for key, each in closed.items()}
    checks = [table(final), table(final, "closed"), once("closed", final)]
    return Scenario(
        pipeline, {"in": records}, every(*checks, exact("late", late), counted("w", {"late": len(late)})),
        shown=f"gap {gap} grace {grace} bound {bound}",
    )  # fmt: skip


def bound_of(at_us: int) -> float:
    """Seconds as they are in a key: a whole number is an int there."""
    return at_us / 1e6 if at_us % 1_000_000 else at_us // 1_000_000


def once(name: str, final: dict[Any, Any]) -> Check:
    """Return a check for one revision for each row."""

    def check(result: TrialResult) -> None:
        if len(result[name]) != len(final):
            raise Mismatch(f"{name}: {result[name]} for {final}")

    return check
