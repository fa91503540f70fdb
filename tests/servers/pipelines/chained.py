"""Two sources in whatever order, dice, and per key each row hashed onto the one before it, into a sink on a server.

What was visible cannot be lost, doubled or contradicted unseen: a second execution would roll other dice.
"""

from __future__ import annotations

from pathlib import Path

from operators import Pipeline
from operators.sinks import KafkaSink, PostgresSink, RedisSink, Sink
from tests.faults.pipelines.held_source import HeldSource
from tests.servers.chains import Link, numbered


def sink() -> Sink:
    if "servers" in settings:
        return KafkaSink(settings["servers"], "chained", key=lambda row: row["key"], trim=False, timeout_ms=2000)
    if "url" in settings:
        return RedisSink(settings["url"], stream="chained", durability=settings.get("durability", "process"))
    names = settings.get("columns", "")
    return PostgresSink(
        settings["dsn"],
        table=settings.get("table", "output"),
        columns=names.split(",") if names else (),
        timeout_ms=1000,
    )


pipeline = Pipeline("chained")
settings = pipeline.settings
count, rate, gate = int(settings["count"]), float(settings["rate"]), Path(settings["gate"])
one = pipeline.source("one", HeldSource(numbered(1), count, rate, gate))
two = pipeline.source("two", HeldSource(numbered(2), count, rate, gate))
linked_rows = one.union(two).key_by(lambda record: record["key"]).process("link", Link(), parallelism=2)
linked_rows.sink("out", sink())
if "inner" in settings:  # the host of all tasks but the sink's
    for operator in ("one", "two", "link"):
        pipeline.place(operator, host=settings["inner"])
