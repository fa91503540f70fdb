"""A pipeline that changes between the lives of its job.

Settings: out, parallelism, sources, partitions, count, rate, shape (plain, more, alone, other).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("changing")
settings = pipeline.settings
PARALLELISM = int(settings.get("parallelism", 2))
SHAPE = settings.get("shape", "plain")
KEYS = 40


class Tally(Operator):
    """Counts per key, and has a timer running for each: they are set in one order per task."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.set_timer(ctx.now() + 0.05, "soon")
        yield {"key": ctx.key, "n": n, "i": record["i"], "p": record["p"]}

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        ctx.state["rang"] = ctx.state.get("rang", 0) + 1
        yield {"key": ctx.key, "rang": ctx.state["rang"]}


class Ordinal(Operator):
    """Numbers what each key comes to; added while the job lives."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["seen"] = ctx.state.get("seen", 0) + 1
        yield {**record, "seen": ctx.state["seen"]}


class Alone(Operator):
    """Keeps one number for its whole task."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["all"] = ctx.state.get("all", 0) + 1
        yield record


def numbered(partition: int, position: int) -> dict[str, int]:
    return {"k": (position * 7 + partition) % KEYS, "i": position, "p": partition}


source = GeneratedSource(
    numbered,
    count=int(settings.get("count", 100_000)),
    partitions=int(settings.get("partitions", 4)),
    rate=float(settings.get("rate", 100)),
)
stream = pipeline.source(
    "other" if SHAPE == "other" else "numbers", source, parallelism=int(settings.get("sources", 2))
)
stream = stream.map("same", lambda record: record)
if SHAPE == "alone":
    stream = stream.process("alone", Alone())
stream = stream.key_by(lambda record: record["k"]).process("tally", Tally(), parallelism=PARALLELISM)
if SHAPE == "more":
    stream = stream.key_by(lambda record: record["key"]).process("ordinal", Ordinal(), parallelism=2)
stream.sink("out", SqliteSink(Path(settings["out"])), parallelism=PARALLELISM)
