"""An operator that a replay does not reproduce, in the way that the setting `how` says; each way has a line of its own.

Settings: how, out, file, gate.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from tests.faults.pipelines.held_source import held_generated

pipeline = Pipeline("diverging")
HOW, FILE = pipeline.settings["how"], Path(pipeline.settings["file"])
seen: dict[Any, int] = {}


class Thing:
    """Hashed by its address."""

    def __init__(self, number: int) -> None:
        self.number = number


class Diverging(Operator):
    """Adds something to each record."""

    def __init__(self) -> None:
        self.counts: dict[Any, int] = {}

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {**record, "more": getattr(self, HOW)(record["k"])}

    def none(self, key: Any) -> Any:
        return key

    def attribute(self, key: Any) -> Any:
        self.counts[key] = self.counts.get(key, 0) + 1  # line: attribute
        return self.counts[key]

    def module(self, key: Any) -> Any:
        seen[key] = seen.get(key, 0) + 1  # line: module
        return seen[key]

    def clock(self, key: Any) -> Any:
        now = time.time()  # line: clock
        return now

    def random(self, key: Any) -> Any:
        return random.random()  # line: random

    def order(self, key: Any) -> Any:
        things = [Thing(number) for number in range(40)]
        return [thing.number for thing in set(things)]  # line: order

    def environment(self, key: Any) -> Any:
        return os.environ.get("DIVERGING", "")  # line: environment

    def file(self, key: Any) -> Any:
        return FILE.read_text()  # line: file


def numbered(partition: int, position: int) -> dict[str, int]:
    return {"k": position % 7, "i": position}


(
    pipeline.source("numbers", held_generated(pipeline.settings["gate"], numbered, count=1_500, rate=1_500.0))
    .key_by(lambda record: record["k"])
    .process("diverging", Diverging())
    .sink("out", JsonLinesSink(Path(pipeline.settings["out"])))
)
