"""Messages of a topic are counted by key, with dice; what is damaged is a dead letter.

Settings: servers, topic, out (a SQLite file).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import KafkaSource

pipeline = Pipeline("topics")
settings = pipeline.settings


class Count(Operator):
    """Counts the messages of each key."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"at": [record["partition"], record["value"]["n"]], "n": ctx.state["n"], "dice": ctx.random.random()}


messages = pipeline.source("in", KafkaSource(settings["servers"], settings["topic"], with_metadata=True), parallelism=2)
keyed = messages.key_by(lambda record: record["value"]["n"] % 5)
keyed.process("count", Count(), parallelism=2).sink("out", SqliteSink(settings["out"]))
