"""Records ask a service, are counted, and go to a sink in a shared store; every 50th is a dead letter.

Settings: out (a URL), sink (lines or parquet), world (a directory with a file per idempotency key), count, rate, gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink, ParquetSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

pipeline = Pipeline("stored")
settings = pipeline.settings
WORLD = Path(settings["world"])
SINKS = {"lines": JsonLinesSink, "parquet": ParquetSink}
EVERY = 50


def ask(record: Any, key: str) -> Any:
    """Record that the key has asked, each time."""
    with open(WORLD / key, "ab", buffering=0) as times:
        times.write(b"%d\n" % (record["p"] * 1_000_000 + record["i"]))
    return key


class Count(Operator):
    """Counts the records of each key."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record["i"] % EVERY == 0:
            raise ValueError(f"every {EVERY}th")
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {**record, "n": ctx.state["n"], "dice": ctx.random.random()}


def numbered(partition: int, position: int) -> dict[str, int]:
    return {"i": position, "p": partition}


source = GeneratedSource(numbered, count=int(settings["count"]), partitions=2, rate=float(settings["rate"]))
(
    pipeline.source("numbers", hold_end(source, settings.get("gate")))
    .call("asked", ask, combine=lambda record, key: {**record, "key": key})
    .key_by(lambda record: record["i"] % 10)
    .process("count", Count())
    .sink("out", SINKS[settings["sink"]](settings["out"], publish_s=0.5), parallelism=2)
)
