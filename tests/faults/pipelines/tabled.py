"""A table of the latest throw of dice per key, kept in a store by key and, as revisions, in files.

Settings: gate (the file without which the source does not end), count, rate, width (tasks of the sink by key), to (the
sink by key), server (its address), undo_rows, of (`throws`, or `sessions` whose times depend on the dice).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from operators import Count, Operator, Pipeline, Session, Table
from operators.sinks import JsonLinesSink, PostgresSink, RedisSink, SqliteSink
from operators.sinks.contract import Sink
from tests.faults.pipelines.held_source import held_generated

pipeline = Pipeline("tabled")
settings = pipeline.settings
undo_rows = int(settings.get("undo_rows", 100_000))
SINKS: dict[str, Callable[[], Sink]] = {
    "sqlite": lambda: SqliteSink("out.db", upsert=True, undo_rows=undo_rows),
    "postgres": lambda: PostgresSink(settings["server"], table="tabled", upsert=True, undo_rows=undo_rows),
    "redis": lambda: RedisSink(settings["server"], stream="tabled", upsert=True, undo_rows=undo_rows),
}


class Dice(Operator):
    """Throws dice, so that no two performances of a record are alike."""

    def process(self, record: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        yield {**record, "dice": ctx.random.randrange(1 << 40)}


numbers = held_generated(
    settings["gate"],
    lambda p, i: {"k": i % 31, "i": i},
    int(settings.get("count", 2000)),
    rate=float(settings.get("rate", 1000)),
)
thrown = pipeline.source("numbers", numbers).key_by(lambda r: 0).process("dice", Dice())
keyed = thrown.timed(lambda r: r["i"] + r["dice"] % 60).key_by(lambda r: r["k"])
table: Table[Any, Any]
if settings.get("of", "throws") == "sessions":
    table = keyed.window_table("sessions", Session(40), Count(), grace_s=1_000_000)
else:
    table = keyed.table("latest").filter("kept", lambda key, r: r["dice"] % 5)
table.sink("out", SINKS[settings.get("to", "sqlite")](), parallelism=int(settings.get("width", 1)))
table.revisions("revisions").sink("log", JsonLinesSink("log"))
