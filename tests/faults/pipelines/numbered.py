"""Numbered rows, each with a draw, into a sink of the kind that a test names; they end when a file `gate` is there.

Settings: sink (a name of `SINKS`), out (its place), count, gate, rate, width (tasks of operator and sink), pad (bytes
of each row), kept (bytes that wait to be printed).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from causal.ports import Bundle, SinkStore, StoreState
from operators import Operator, Pipeline
from operators.sinks import ConsoleSink, JsonLinesSink, Sink, SqliteSink, WebhookSink
from operators.sinks.sqlite.sqlite_store import SqliteStore
from tests.faults.pipelines.held_source import HeldSource

KEYS = 7
PER_S = 50.0
"""Slow enough that there is something to write for minutes: an outage shows as a pause."""
RULE = """CREATE TRIGGER IF NOT EXISTS rule BEFORE INSERT ON output WHEN json_extract(NEW.record, '$.i') % 10 = 7
    BEGIN SELECT RAISE(ABORT, 'no sevens'); END"""


class SinkWith(SqliteSink):
    """A SQLite file with stores of another class."""

    def __init__(self, path: str, store: type[SqliteStore]) -> None:
        super().__init__(path, busy_ms=50)
        self._store = store

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        return self._store(self, task)


class StickingStore(SqliteStore):
    """Its writes do not come back while a file `stuck` is next to the database."""

    def write(self, bundle: Bundle) -> None:
        while self._sink.path.with_name("stuck").exists():
            time.sleep(0.01)
        super().write(bundle)


class RuledStore(SqliteStore):
    """The owner of its file has a rule: no row with an `i` that ends in 7."""

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        state = super().open(task, run, incarnation)
        with sqlite3.connect(self._sink.path) as db:
            db.execute(RULE)
        db.close()
        return state


class Number(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"i": record["i"], "k": ctx.key, "n": n, "dice": ctx.random.random(), "pad": pad}


pipeline = Pipeline("numbered")
settings = pipeline.settings
pad = "x" * int(settings.get("pad", "0"))
out = settings.get("out", "out.db")
SINKS: Mapping[str, Callable[[], Sink]] = {
    "sticking": lambda: SinkWith(out, StickingStore),
    "ruled": lambda: SinkWith(out, RuledStore),
    "lines": lambda: JsonLinesSink(out, busy_ms=50),
    "webhook": lambda: WebhookSink(out, batch_rows=20),
    "console": lambda: ConsoleSink(int(settings.get("kept", str(1 << 30)))),
}
rate, width = float(settings.get("rate", PER_S)), int(settings.get("width", "1"))
source = HeldSource(lambda p, i: {"i": i, "k": i % KEYS}, int(settings["count"]), rate, Path(settings["gate"]))
(
    pipeline.source("numbers", source)
    .key_by(lambda record: record["k"])
    .process("number", Number(), parallelism=width)
    .sink("out", SINKS[settings["sink"]](), parallelism=width)
)
