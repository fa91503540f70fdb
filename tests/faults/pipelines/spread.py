"""Two partitions, counted per key over two tasks, into two sink tasks with a file each.

Every output says which element it comes from and the how-many-th of its key it is, so nothing can go
missing, come twice or out of order unseen.  The source does not end before the file `gate` is there.
"""

from __future__ import annotations

from typing import Any

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

KEYS = 23


class Number(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        # The dice make it a job that only a replay, not a second execution, can continue.
        yield {**record, "n": n, "dice": ctx.random.random()}


pipeline = Pipeline("spread")
settings = pipeline.settings
source = GeneratedSource(
    lambda p, i: {"p": p, "i": i, "k": (i * 31 + p) % KEYS},
    count=int(settings.get("count", "1000")),
    partitions=2,
    rate=float(settings.get("rate", "1000")),
)
(
    pipeline.source("numbers", hold_end(source, settings.get("gate")), parallelism=2)
    .filter("all", lambda record: True)
    .key_by(lambda record: record["k"])
    .process("number", Number(), parallelism=2)
    .sink("out", JsonLinesSink(settings.get("out", "rows")), parallelism=2)
)
