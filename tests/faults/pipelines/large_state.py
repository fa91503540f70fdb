"""A count over this many keys that its state cannot be loaded within the silence that counts as death.

Each key comes once and every thousandth twice; the last record waits for the file `--set gate=PATH`.  A row names a
key that came again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from tests.faults.pipelines.held_source import HeldSource

AGAIN = 1000
PER_S = 1e6
pipeline = Pipeline("large-state")
KEYS = int(pipeline.settings["keys"])


class Count(Operator):
    def process(self, record: int, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        return [(record, n)] if n > 1 else None


def key_at(partition: int, index: int) -> int:
    return index if index < KEYS else (index - KEYS) * AGAIN


(
    pipeline.source("numbers", HeldSource(key_at, KEYS + KEYS // AGAIN, PER_S, Path(pipeline.settings["gate"])))
    .key_by(lambda record: record)
    .process("count", Count())
    .sink("out", SqliteSink(pipeline.settings.get("out", "out.db")))
)
