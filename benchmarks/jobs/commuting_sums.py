"""The pipeline of `determinants` for operators that commute: sums per key of rows from many sources, given at the end.

`commutes` is 1 or 0: whether the operator says so.
"""

from __future__ import annotations

from typing import Any

from benchmarks.harness.tally import TallySink
from operators import Operator, Pipeline
from operators.sources import SequenceSource

KEYS = 1_000
Row = tuple[int, int]


def slices(partition: int, start: int, stop: int) -> list[Row]:
    """Return rows `start` to `stop` of a partition."""
    return [(number * 7 % KEYS, number + partition) for number in range(start, stop)]


def key_of(row: Row) -> int:
    """Return the key of a row."""
    return row[0]


class Sums(Operator):
    """The sum per key."""

    def process(self, record: Row, ctx: Any) -> None:
        ctx.state["sum"] = ctx.state.get("sum", 0) + record[1]

    def finish(self, ctx: Any) -> list[tuple[int, int]]:
        return [(ctx.key, ctx.state["sum"])]


class CommutingSums(Sums):
    """The same, declared."""

    commutes = True


pipeline = Pipeline("commuting-sums")
commutes = pipeline.settings.get("commutes", "1") == "1"
count = int(pipeline.settings.get("count", "40000"))
rate = float(pipeline.settings.get("rate", "8000"))
inputs = int(pipeline.settings.get("inputs", "4"))

(
    pipeline.source("rows", SequenceSource(slices, count // inputs, inputs, rate), inputs)
    .key_by(key_of)
    .process("sums", CommutingSums() if commutes else Sums(), parallelism=2)
    .sink("out", TallySink(pipeline.settings.get("out", "tally.db")))
)
