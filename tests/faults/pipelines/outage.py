"""Numbered rows, each with a draw, into a SQLite file whose writes do not come back while a file `stuck` is there.

`--set lines=DIRECTORY`: into JSON lines instead.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from causal.ports import Bundle, SinkStore
from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sinks.sqlite.sqlite_store import SqliteStore
from tests.faults.pipelines.held_source import HeldSource

PER_S = 50.0
"""Slow enough that there is something to write for minutes: an outage shows as a pause."""


class StickingSink(SqliteSink):
    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        return StickingStore(self, task)


class StickingStore(SqliteStore):
    def write(self, bundle: Bundle) -> None:
        while self._sink.path.with_name("stuck").exists():
            time.sleep(0.01)
        super().write(bundle)


class Number(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"i": record["i"], "n": n, "dice": ctx.random.random()}


pipeline = Pipeline("outage")
settings = pipeline.settings
sink = (
    JsonLinesSink(settings["lines"], busy_ms=50)
    if "lines" in settings
    else StickingSink(settings.get("out", "out.db"), busy_ms=50)
)
(
    pipeline.source(
        "numbers",
        HeldSource(lambda p, i: {"i": i, "k": i % 7}, int(settings["count"]), PER_S, Path(settings["gate"])),
    )
    .key_by(lambda record: record["k"])
    .process("number", Number())
    .sink("out", sink)
)
