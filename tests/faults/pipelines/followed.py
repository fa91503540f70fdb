"""Lines of files that a test writes while the job runs, each with the dice that were thrown for it."""

from __future__ import annotations

import time
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import FilesSource


class Number(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"line": record, "n": n, "dice": ctx.random.random()}


def length(line: Any) -> int:
    time.sleep(pause_s)
    return len(line)


pipeline = Pipeline("followed")
settings = pipeline.settings
pattern, follow = settings.get("pattern", "in/*.txt"), settings.get("follow", "yes") == "yes"
pause_s = float(settings.get("pause_s", 0))
lines = pipeline.source(
    "lines",
    FilesSource(pattern, format=settings.get("format", "text"), follow=follow, partitions=2, quiet_s=0),
    parallelism=2,
)
lines.key_by(length).process("number", Number()).sink("out", SqliteSink("out.db"))
