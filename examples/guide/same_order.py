"""Three kinds of delivery: by arrival, ordered, and speculative."""

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run


class Pairs(Operator):
    """A window of two: each record with the one before it."""

    def process(self, record, ctx):
        before, ctx.state["last"] = ctx.state.get("last", ""), record["v"]
        yield before + record["v"]


def built(delivery):
    pipeline = Pipeline("pairs")
    left = pipeline.source("left", GeneratedSource(lambda p, i: {}, count=0))
    right = pipeline.source("right", GeneratedSource(lambda p, i: {}, count=0))
    both = [s.watermarks(f"{n}-time", lambda r: r["at"]) for n, s in (("left", left), ("right", right))]
    pairs = both[0].union(both[1]).process("pairs", Pairs(), parallelism=1, delivery=delivery)
    rows = pairs.revisions("rows") if delivery == "speculative" else pairs  # a table: see below
    rows.sink("out", SqliteSink("o.db"))
    return pipeline


def letters(*pairs):
    return [{"v": v, "at": at} for v, at in pairs]


inputs = {"left": letters(("a", 1), ("c", 3), ("e", 5)), "right": letters(("b", 2), ("d", 4))}
ordered = [run(built("ordered"), inputs, seed=seed, crash={"pairs/0": 3}) for seed in range(8)]
assert all(result["out"] == ["a", "ab", "bc", "cd", "de"] for result in ordered)

arrival = {tuple(run(built("arrival"), inputs, seed=seed)["out"]) for seed in range(8)}
assert len(arrival) > 1  # chance; but within one run a crash changes nothing
for seed in range(8):
    rows = run(built("arrival"), inputs, seed=seed, crash={"pairs/0": 3})["out"]
    assert all(after[0] == before[-1] for before, after in zip(rows, rows[1:]))  # no row contradicts the one before

for seed in range(8):
    table = {}
    for place, old, new in run(built("speculative"), inputs, seed=seed, crash={"rows/0": 3})["out"]:
        assert table.pop(place, None) == old  # a revision contains the previous value
        if new is not None:
            table[place] = new
    assert [table[place] for place in sorted(table)] == ["a", "ab", "bc", "cd", "de"]
