"""The same pipeline with a process per task, in one process, and in two: the rows are the same."""

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.testing import run


class Visits(Operator):
    def process(self, user, ctx):
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield (user, n)


def visits(processes):
    pipeline = Pipeline("visits", processes=processes)
    clicks = pipeline.source("clicks", GeneratedSource(lambda p, i: "ab"[i % 2], count=4))
    clicks.key_by(lambda user: user).process("visits", Visits()).sink("out", JsonLinesSink("."))
    return pipeline


for processes in ("per-task", "one", "stages"):
    result = run(visits(processes), crash={"visits/0": 3})
    print(f"{processes}: {', '.join(result.elements)} deliver {result['out']} after {result.recoveries} crash")
