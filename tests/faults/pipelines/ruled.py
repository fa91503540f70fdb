"""Events judged by rules in every task, then named by a table; both are waited for, so each row follows from i.

The events do not end before the file `gate` is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from operators import BroadcastOperator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

KEYS = 10

pipeline = Pipeline("ruled")
count = int(pipeline.settings.get("count", "2000"))
rate = float(pipeline.settings.get("rate", "500"))


class Judge(BroadcastOperator):
    """Numbers the events of a key, and says what the rule of the key was."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"k": ctx.key, "n": n, "limit": ctx.broadcast[ctx.key], "rules": len(ctx.broadcast)}

    def process_broadcast(self, record: Any, ctx: Any) -> None:
        ctx.broadcast[record["k"]] = record["limit"]


def key_of(record: dict[str, Any]) -> int:
    return int(record["k"])


rules = pipeline.source("rules", GeneratedSource(lambda p, i: {"k": i % KEYS, "limit": i}, 2 * KEYS, rate=5))
names = pipeline.source("names", GeneratedSource(lambda p, i: {"k": i % KEYS, "name": f"n{i}"}, 3 * KEYS, rate=6))
source = GeneratedSource(lambda p, i: {"k": (i * 3 + p) % KEYS}, count, 2, rate)
events = pipeline.source("events", hold_end(source, pipeline.settings.get("gate")))
judged = events.key_by(key_of).broadcast("judge", rules, Judge(), wait=True, parallelism=2)
named = judged.key_by(key_of).join_table(
    "named", names.key_by(key_of).table("table"), lambda row, name: {**row, "name": name["name"]}, wait=True
)
named.sink("out", JsonLinesSink(pipeline.settings.get("out", "out")))
