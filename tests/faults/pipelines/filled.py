"""Three tasks with dice in a row, and after them one whose state is some 16 MB: a new value for each key, in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from tests.faults.pipelines.held_source import HeldSource

KEYS, VALUE_CHARACTERS = 8_000, 2_000
COUNT, PER_S = 100_000_000, 1_500.0


class Dice(Operator):
    def process(self, record: int, ctx: Any) -> Any:
        ctx.state["dice"] = ctx.random.randrange(10)
        yield record


class Fill(Operator):
    def process(self, record: int, ctx: Any) -> Any:
        ctx.state["value"] = f"{record:x}" * VALUE_CHARACTERS
        ctx.state["value"] = ctx.state["value"][:VALUE_CHARACTERS]
        if record % 100 == 0:
            yield record


pipeline = Pipeline("filled")
settings = pipeline.settings
stream: Any = pipeline.source("read", HeldSource(lambda _, index: index, COUNT, PER_S, Path(settings["gate"])))
for name in ("a", "b", "c"):
    stream = stream.key_by(lambda record: 0).process(name, Dice())
stream = stream.key_by(lambda record: record % KEYS).process("fill", Fill(), state=settings.get("state", "memory"))
stream.sink("out", JsonLinesSink(Path(settings["out"])))
