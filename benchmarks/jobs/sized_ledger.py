"""The pipeline of `state_sizes`: an own operator with a kilobyte of state per key, filled, then at a steady rate.

The fill writes every key, as often as it takes for the same number of records at least; afterwards every hundredth key
gets all records, until a file says where the source ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import shake_128
from pathlib import Path
from typing import Any, Literal, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # `causal run` puts only this file's directory there

from benchmarks.jobs import large_ledger
from benchmarks.jobs.gated import Gated
from operators import Operator, Pipeline, ValueState
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

LOAD_BYTES = 1000
"""The bytes of state per key, in addition to its count; they do not compress."""
FILL_RECORDS_MIN = 200_000


def fills_of(keys: int) -> int:
    """Return how many times the fill writes each key."""
    return max(1, -(-FILL_RECORDS_MIN // keys))


class Count(Operator):
    """Counts the records of each key, and passes the counts on that exceed those of the fill."""

    seen = ValueState[dict[str, Any]]()

    def process(self, record: tuple[int, str], ctx: Any) -> Iterator[tuple[int, int]]:
        """Write the whole state of the key."""
        key, _ = record
        before = self.seen.value
        if before is None:
            before = {"n": 0, "load": shake_128(b"%d" % key).digest(LOAD_BYTES)}
        n = before["n"] + 1
        self.seen.value = {"n": n, "load": before["load"]}
        if n > fills:
            yield key, n


pipeline = Pipeline("sized-ledger")
settings = pipeline.settings
keys, rate = int(settings.get("keys", "1000")), float(settings.get("rate", "2000"))
fills = fills_of(keys)
out = Path(settings.get("out", "ledger.db"))

kept = cast(Literal["memory", "disk"], settings.get("kept", "memory"))

fill = pipeline.source("fill", GeneratedSource(lambda partition, i: (i % keys, "fill"), fills * keys))
paced = GeneratedSource(lambda partition, i: large_ledger.live(i, keys), None, rate=rate)
steady = pipeline.source("live", Gated(paced, large_ledger.gate_of(out)))
(
    fill.union(steady)
    .key_by(lambda row: row[0])
    .process("count", Count(), parallelism=1, state=kept)
    .sink("out", SqliteSink(out))
)
