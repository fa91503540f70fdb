"""Records of 2 kB through a task that takes its time, so that the log kept for replay outgrows a small memory.

The source does not end before the file `gate` is there; from then on the task takes no time any more.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

pipeline = Pipeline("heavy")
settings = pipeline.settings


class Slow(Operator):
    hurries = False

    def process(self, record: Any, ctx: Any) -> Any:
        self.hurries = self.hurries or Path(settings["gate"]).exists()
        if not self.hurries:
            time.sleep(0.002)
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"i": record["i"], "n": n, "bytes": len(record["load"]), "dice": ctx.random.random()}


source = GeneratedSource(
    lambda p, i: {"i": i, "k": i % 7, "load": f"{i:08d}" * 256}, count=int(settings.get("count", "6000"))
)
(
    pipeline.source("numbers", hold_end(source, settings["gate"]))
    .key_by(lambda record: record["k"])
    .process("slow", Slow())
    .sink("out", SqliteSink(settings.get("out", "heavy.db")))
)
