"""Rows without waiting, and a revision where an older record arrives later."""

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run


class Pairs(Operator):
    """Joins each letter to the one before it, so its rows show the order."""

    def process(self, record, ctx):
        before, ctx.state["last"] = ctx.state.get("last", ""), record["letter"]
        yield before + record["letter"]


def letters(*pairs):
    return [{"letter": letter, "at": at} for letter, at in pairs]


pipeline = Pipeline("pairs")
left = pipeline.source("left", GeneratedSource(lambda p, i: {}, count=0)).watermarks("left-time", lambda r: r["at"])
right = pipeline.source("right", GeneratedSource(lambda p, i: {}, count=0)).watermarks("right-time", lambda r: r["at"])
table = left.union(right).process("pairs", Pairs(), parallelism=1, delivery="speculative")
table.revisions("rows").sink("out", SqliteSink("pairs.db"))

inputs = {"left": letters(("a", 1), ("c", 3)), "right": letters(("b", 2), ("d", 4))}
for (time_s, *_), old, new in run(pipeline, inputs, seed=5)["out"]:
    print(f"{time_s:.0f}: {old} -> {new}")
