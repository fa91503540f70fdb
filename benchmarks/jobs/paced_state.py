"""The pipeline of `checkpoint_pace`: a count in `ctx.state` over many keys, all of which change all the time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # `causal run` puts only this file's directory there

from benchmarks.harness.tally import TallySink
from operators import Operator, Pipeline
from operators.sources import SequenceSource

TOLD_EVERY = 1000
"""One record in this many gives a row: the sink is not what is measured."""


class Count(Operator):
    """Counts the records of each key."""

    def process(self, record: int, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        if record % TOLD_EVERY == 0:
            return [(record, n)]
        return None


def scattered(partition: int, start: int, stop: int) -> list[int]:
    """Keys that lie apart; 7919 is prime, so each of them comes once in `KEYS` records."""
    return [i * 7919 % KEYS for i in range(start, stop)]


pipeline = Pipeline("checkpoint-pace")
KEYS, RATE, SECONDS = (
    int(pipeline.settings.get(name, default))
    for name, default in (("keys", 300_000), ("rate", 150_000), ("seconds", 20))
)
(
    pipeline.source("numbers", SequenceSource(scattered, RATE * SECONDS, rate=RATE))
    .key_by(lambda record: record)
    .process("count", Count())
    .sink("out", TallySink(pipeline.settings.get("out", "out.db")))
)
