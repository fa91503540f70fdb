"""The pipeline of `nexmark`: one query over events that were made beforehand, which costs the job nothing.

`write` makes a file per partition; the source reads it once per process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from causal.values import decode, encode
from examples.nexmark import queries
from examples.nexmark.check import events_told
from examples.nexmark.events import Events
from examples.nexmark.terms import Terms
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sinks.tally import TallySink
from operators.sources import SequenceSource

PARTITIONS = 2


def write(shape: Events, count: int, directory: Path) -> None:
    """`count` events, dealt to the partitions in turn."""
    events = shape.listed(count)
    for partition in range(PARTITIONS):
        (directory / f"{partition}.events").write_bytes(encode(events[partition::PARTITIONS]))


class _Made:
    """Reads the files of `write`, each when it is first asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._events: dict[int, list[Any]] = {}

    def __call__(self, partition: int, start: int, stop: int) -> list[Any]:
        if partition not in self._events:
            self._events[partition] = decode((self._directory / f"{partition}.events").read_bytes())
        return self._events[partition][start:stop]


settings = Pipeline("settings").settings
query = int(settings.get("query", "1"))
count = int(settings.get("count", "10000")) // PARTITIONS
rate = float(settings["rate"]) if "rate" in settings else None
out = settings.get("out", "nexmark.db")

pipeline = queries.pipeline(
    query,
    SequenceSource(_Made(Path(settings.get("made", "."))), count, PARTITIONS, rate),
    TallySink(out) if "tally" in settings else SqliteSink(out),
    Terms.told(settings),
    parallelism=2,
    out_of_order_s=events_told(settings).out_of_order_s,
)
