"""The pipeline of `determinants` for windows: sums per key in windows of one kind, over rows (key, seconds).

`windows` is tumbling, sliding or session, by the wall clock, or event: tumbling in event time, which logs nothing of
its own.
"""

from __future__ import annotations

from benchmarks.harness.tally import TallySink
from operators import Count, Pipeline, Session, Sliding, Tumbling
from operators.sources import SequenceSource

KEYS = 1_000
Row = tuple[int, float]


def slices(partition: int, start: int, stop: int) -> list[Row]:
    """Return rows `start` to `stop`; a thousandth of a second lies between two."""
    return [(number * 7 % KEYS, number / 1000) for number in range(start, stop)]


def key_of(row: Row) -> int:
    """Return the key of a row."""
    return row[0]


def time_of(row: Row) -> float:
    """Return the event time of a row."""
    return row[1]


ASSIGNERS: dict[str, Tumbling | Sliding | Session] = {
    "tumbling": Tumbling(1.0, clock="processing"),
    "sliding": Sliding(1.0, 0.2, clock="processing"),
    "session": Session(0.2, clock="processing"),
    "event": Tumbling(1.0),
}

pipeline = Pipeline("keyed-windows")
windows = pipeline.settings.get("windows", "tumbling")
count = int(pipeline.settings.get("count", "60000"))
rate = float(pipeline.settings.get("rate", "20000"))

rows = pipeline.source("rows", SequenceSource(slices, count // 2, 2, rate), 2)
timed = rows.watermarks("time", time_of) if windows == "event" else rows
(
    timed.key_by(key_of)
    .window("window", ASSIGNERS[windows], Count(), parallelism=2)
    .sink("out", TallySink(pipeline.settings.get("out", "tally.db")))
)
