"""The pipeline of `isolation`: a counting task that is killed, one next to it on the same source, and one apart.

`victim` and `sibling` count the same stream in chains of their own; `stranger` has a source of its own.  Each has its
own sink, so that neither `sibling` nor `stranger` depends on `victim`.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.jobs.stamped_sink import StampedSink
from operators import Pipeline
from operators.sources import GeneratedSource

KEYS = 1000
CHAINS = ("victim", "sibling", "stranger")


def make(partition: int, i: int) -> tuple[int, int]:
    """Element i: the keys in turn, scattered."""
    return i * 7919 % KEYS, i


def database(out: Path, chain: str) -> Path:
    """Return where the rows of a chain are, in addition to `out`."""
    return out.with_name(f"{chain}.db")


pipeline = Pipeline("bystanders")
count = int(pipeline.settings.get("count", "10000"))
rate = float(pipeline.settings.get("rate", "1000"))
out = Path(pipeline.settings.get("out", "out.db"))

shared = pipeline.source("shared", GeneratedSource(make, count, 1, rate))
apart = pipeline.source("apart", GeneratedSource(make, count, 1, rate))
for chain, numbers in zip(CHAINS, (shared, shared, apart), strict=True):
    counted = numbers.key_by(lambda row: row[0]).count(chain)
    counted.sink(f"{chain}-out", StampedSink(database(out, chain)))
