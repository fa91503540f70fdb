"""Operators in the order of event time, and immediately with corrections: docs/guide/order.md."""

from __future__ import annotations

from typing import Any

from operators import Operator, Pipeline
from operators.testing import TrialResult
from tests.oracles.frame import Draw, Mismatch, Scenario, exact, oracle, same, sink, source

Row = dict[str, Any]
BOUND_S = 200
"""Nothing is late."""


class Pairs(Operator):
    """Each record with the one of its key before it."""

    def process(self, record: Row, ctx: Any) -> Any:
        before, ctx.state["last"] = ctx.state.get("last"), record["at"]
        yield [record["k"], before, record["at"]]


def standing(revisions: list[Any]) -> list[Any]:
    """The rows that stand in the end, by event time; each revision must say what was there."""
    rows: dict[Any, Any] = {}
    for place, old, new in revisions:
        if rows.pop(place, None) != old:
            raise Mismatch(f"a revision of {place} says {old!r}")
        if new is not None:
            rows[place] = new
    return [rows[place] for place in sorted(rows)]


@oracle("order")
def _order(draw: Draw) -> Scenario:
    """`ordered`: one order, by event time, in every run; `speculative`: the sum of its revisions is the same."""
    pipeline = Pipeline("p")
    times = draw.sample(range(100), draw.randint(0, 20))
    rows: list[Row] = [{"at": at, "k": draw.choice("ab"), "of": draw.choice(("left", "right"))} for at in times]
    streams = [
        source(pipeline, name).watermarks(f"{name}-time", lambda r: r["at"], out_of_order_s=BOUND_S)
        for name in ("left", "right")
    ]
    keyed = streams[0].union(streams[1]).key_by(lambda r: r["k"])
    how = draw.choice(("process", "speculative", "reduce", "count"))
    expected: list[Any] = []
    state: dict[str, Any] = {}
    for row in sorted(rows, key=lambda r: r["at"]):
        before = state.get(row["k"], [])
        state[row["k"]] = [*before, row["at"]]
        if how == "reduce":
            expected.append((row["k"], state[row["k"]]))
        elif how == "count":
            expected.append((row["k"], len(before) + 1))
        else:
            expected.append([row["k"], before[-1] if before else None, row["at"]])
    if how == "reduce":
        sink(keyed.reduce("o", lambda times, r: [*times, r["at"]], initial=[], parallelism=1, delivery="ordered"))
    elif how == "count":
        sink(keyed.count("o", parallelism=1, delivery="ordered"))
    elif how == "process":
        sink(keyed.process("o", Pairs(), parallelism=1, delivery="ordered"))
    else:
        sink(keyed.process("o", Pairs(), parallelism=1, delivery="speculative").revisions("rows"))

    def check(result: TrialResult) -> None:
        same("out", standing(result["out"]), expected)

    inputs = {name: [row for row in rows if row["of"] == name] for name in ("left", "right")}
    return Scenario(pipeline, inputs, check if how == "speculative" else exact("out", expected))
