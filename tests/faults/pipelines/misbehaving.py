"""An operator that is nondeterministic behind the runtime's back, in the way that the setting `how` says."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

pipeline = Pipeline("misbehaving")
HOW = pipeline.settings["how"]


class Thing:
    """Hashed by its address, so a set of them has another order in each process."""

    def __init__(self, number: int) -> None:
        self.number = number


class Misbehaving(Operator):
    """Ignores everything that the documentation says about ctx."""

    def __init__(self) -> None:
        self.ticks = 0

    def open(self, ctx: Any) -> None:
        if HOW == "thread":
            threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        while True:
            self.ticks += 1
            time.sleep(0.0005)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if HOW == "urandom":
            yield {**record, "seen": os.urandom(4).hex()}
        elif HOW == "address":
            yield {**record, "seen": [thing.number for thing in {Thing(i) for i in range(5)}]}
        elif HOW == "thread":
            yield {**record, "seen": self.ticks}
        else:  # nothing of it is ever put out
            ctx.state["hidden"] = os.urandom(4)
            yield record


def numbered(partition: int, position: int) -> dict[str, int]:
    return {"k": position % 7, "i": position}


(
    pipeline.source("numbers", GeneratedSource(numbered, count=int(pipeline.settings["count"]), rate=2000.0))
    .key_by(lambda record: record["k"])
    .process("misbehaving", Misbehaving())
    .sink("out", JsonLinesSink(Path(pipeline.settings["out"])))
)
