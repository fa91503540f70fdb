"""Two sources out of order: a chain of hashes over both in the order of event times, and counts by event-time timer.

Settings: out (database), rate (records per second and source), count (records per source), delivery (of the chain),
gate (a file without which the sources do not end).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

NAMES = ("left", "right")
BOUND_S = 0.03
STEP_S = 0.01
PER_S = 0.5
"""Records are counted for each so many seconds of event time."""


def record(name: str, number: int) -> tuple[str, int, float]:
    """Up to 0.05 s out of order, so some are late."""
    return name, number, (number + number * 7 % 6) * STEP_S


def time_of(row: tuple[str, int, float]) -> float:
    return row[2]


def link(before: str, row: tuple[str, int, float]) -> str:
    return blake2b(f"{before} {row}".encode(), digest_size=8).hexdigest()


class Chain(Operator):
    """Each record's hash is made of the one before it."""

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["last"] = last = link(ctx.state.get("last", ""), row)
        yield ("link", *row, last)


class PerStretch(Operator):
    """Counts the records of a source in each stretch of event time, and emits the count when it is over."""

    def process(self, row: Any, ctx: Any) -> None:
        end = int(row[2] // PER_S) + 1
        ctx.state[end] = ctx.state.get(end, 0) + 1
        ctx.set_timer(end * PER_S, str(end), clock="event")

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        yield ("count", ctx.key, int(name), ctx.state.pop(int(name)))


def records_of(name: str) -> Callable[[int, int], tuple[str, int, float]]:
    return lambda partition, number: record(name, number)


pipeline = Pipeline("ordered")
_count, _rate = (int(pipeline.settings.get(name, default)) for name, default in (("count", "100"), ("rate", "100")))
_streams = [
    pipeline.source(
        name,
        hold_end(
            GeneratedSource(records_of(name), count=_count, rate=_rate),
            pipeline.settings.get("gate"),
        ),
    ).watermarks(f"{name}-time", time_of, out_of_order_s=BOUND_S)
    for name in NAMES
]
_chained: Any = (
    _streams[0]
    .union(_streams[1])
    .process("chain", Chain(), parallelism=1, delivery=pipeline.settings.get("delivery", "ordered"))
)
if pipeline.settings.get("delivery") == "speculative":
    _chained = _chained.revisions("revisions")
_chained.sink("out", SqliteSink(Path(pipeline.settings.get("out", "ordered.db"))))
pipeline.stream("left-time").union(pipeline.stream("right-time")).key_by(lambda row: row[0]).process(
    "stretch", PerStretch(), parallelism=2
).sink("counts", SqliteSink(Path(pipeline.settings.get("out", "ordered.db") + ".counts")))
