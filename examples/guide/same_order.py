"""The same two inputs, by arrival and in the order of event time, in three runs with a crash each."""

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


inputs = {"left": letters(("a", 1), ("c", 3), ("e", 5)), "right": letters(("b", 2), ("d", 4))}

for delivery in ("arrival", "ordered"):
    pipeline = Pipeline("pairs")
    left = pipeline.source("left", GeneratedSource(lambda p, i: {}, count=0))
    right = pipeline.source("right", GeneratedSource(lambda p, i: {}, count=0))
    left = left.watermarks("left-time", lambda r: r["at"])
    right = right.watermarks("right-time", lambda r: r["at"])
    pairs = left.union(right).process("pairs", Pairs(), parallelism=1, delivery=delivery)
    pairs.sink("out", SqliteSink("pairs.db"))
    for seed in (1, 2, 3):  # the inputs arrive in another order with each seed
        result = run(pipeline, inputs, seed=seed, crash={"pairs/0": 3})
        print(f"{delivery} {seed}: {' '.join(result['out'])}")
