"""Numbered rows, each with a draw, into a SQLite file whose owner has a rule: no row with an `i` that ends in 7."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from causal.ports import SinkStore, StoreState
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sinks.sqlite.sqlite_store import SqliteStore
from tests.faults.pipelines.held_source import HeldSource

RULE = """CREATE TRIGGER IF NOT EXISTS rule BEFORE INSERT ON output WHEN json_extract(NEW.record, '$.i') % 10 = 7
    BEGIN SELECT RAISE(ABORT, 'no sevens'); END"""


class RuledSink(SqliteSink):
    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        return RuledStore(self, task)


class RuledStore(SqliteStore):
    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        state = super().open(task, run, incarnation)
        db = sqlite3.connect(self._sink.path)
        db.execute(RULE)
        db.close()
        return state


class Draw(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"i": record["i"], "n": n, "dice": ctx.random.random()}


pipeline = Pipeline("ruled")
settings = pipeline.settings
(
    pipeline.source(
        "numbers",
        HeldSource(lambda p, i: {"i": i, "k": i % 7}, int(settings["count"]), 200.0, Path(settings["gate"])),
    )
    .key_by(lambda record: record["k"])
    .process("draw", Draw())
    .sink("out", RuledSink(settings.get("out", "out.db")))
)
