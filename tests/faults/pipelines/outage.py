"""Numbered rows, each with a draw, into a SQLite file whose writes do not come back while a file `stuck` is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from causal.ports import Bundle, SinkStore
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sinks.sqlite import SqliteStore
from operators.sources import GeneratedSource


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
(
    pipeline.source(
        "numbers",
        GeneratedSource(
            lambda p, i: {"i": i, "k": i % 7},
            count=int(settings.get("count", "2000")),
            rate=float(settings.get("rate", "1000")),
        ),
    )
    .key_by(lambda record: record["k"])
    .process("number", Number())
    .sink("out", StickingSink(settings.get("out", "out.db"), busy_ms=50))
)
