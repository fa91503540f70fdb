"""Numbered rows for people, by two tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import ConsoleSink
from tests.faults.pipelines.held_source import HeldSource


class Number(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"i": record["i"], "k": ctx.key, "n": n, "dice": ctx.random.random(), "pad": pad}


pipeline = Pipeline("shown")
settings = pipeline.settings
pad = "x" * int(settings.get("pad", "0"))
(
    pipeline.source(
        "numbers",
        HeldSource(lambda p, i: {"i": i, "k": i % 7}, int(settings["count"]), 200.0, Path(settings["gate"])),
    )
    .key_by(lambda record: record["k"])
    .process("number", Number(), parallelism=2)
    .sink("out", ConsoleSink(int(settings.get("kept", str(1 << 30)))), parallelism=2)
)
