"""The pipeline of `nexmark`: one query over events that were made beforehand, which costs the job nothing.

`write` makes the files; the source reads them as it goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.harness.tally import TallySink
from causal.records.values import decode, encode
from examples.nexmark import queries
from examples.nexmark.check import events_of
from examples.nexmark.events import Events
from examples.nexmark.terms import Terms
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import SequenceSource

PARTITIONS = 2


_BLOCK = 4096


def write(shape: Events, count: int, directory: Path) -> None:
    """`count` events, dealt to the partitions in turn, in blocks."""
    for first in range(0, count, _BLOCK * PARTITIONS):
        events = [shape.event(n) for n in range(first, min(first + _BLOCK * PARTITIONS, count))]
        for partition in range(PARTITIONS):
            path = directory / f"{partition}-{first // (_BLOCK * PARTITIONS)}.events"
            path.write_bytes(encode(events[partition::PARTITIONS]))


class _WrittenRecords:
    """Reads what `write` has written, a block at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._block: tuple[tuple[int, int], list[Any]] = ((-1, -1), [])

    def __call__(self, partition: int, start: int, stop: int) -> list[Any]:
        events: list[Any] = []
        while start < stop:
            block, place = divmod(start, _BLOCK)
            events += self._read(partition, block)[place : place + stop - start]
            start = (block + 1) * _BLOCK
        return events

    def _read(self, partition: int, block: int) -> list[Any]:
        if self._block[0] != (partition, block):
            packed = (self._directory / f"{partition}-{block}.events").read_bytes()
            self._block = ((partition, block), decode(packed))
        return self._block[1]


settings = Pipeline("settings").settings
query = int(settings.get("query", "1"))
count = int(settings.get("count", "10000")) // PARTITIONS
rate = float(settings["rate"]) if "rate" in settings else None
out = settings.get("out", "nexmark.db")

pipeline = queries.pipeline(
    query,
    SequenceSource(_WrittenRecords(Path(settings.get("made", "."))), count, PARTITIONS, rate),
    TallySink(out) if "tally" in settings else SqliteSink(out),
    Terms.of_settings(settings),
    parallelism=2,
    out_of_order_s=events_of(settings).out_of_order_s,
)
