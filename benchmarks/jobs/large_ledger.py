"""The pipeline of `state`: a keyed count, first filled with all its keys, then at a steady rate until asked to end.

The fill touches every key once; afterwards every hundredth key gets all records: 1 % changes between checkpoints.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # `causal run` puts only this file's directory there

from benchmarks.harness.written import records_in
from benchmarks.jobs.gated import Gated
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

WARM_SHARE = 100
"""Every so many-th key changes after the fill."""


def filled(position: int) -> tuple[int, str]:
    """Return one record per key."""
    return position, "fill"


def live(position: int, keys: int) -> tuple[int, str]:
    """Return the warm keys in turn, scattered."""
    return position * 7919 % (keys // WARM_SHARE) * WARM_SHARE, "live"


def gate_of(out: Path) -> Path:
    """Return the file that ends the steady source."""
    return out.with_name("gate")


def check(path: Path, records: int, fills: int = 1) -> dict[str, int]:
    """Return the live rows `(key, n)` in the sink: n continues after `fills` without gaps per key, each once."""
    seen: dict[int, int] = {}
    rows = doubled = contradicted = 0
    for key, n in records_in(path):
        if n <= fills:
            continue
        rows += 1
        before = seen.get(key, fills)
        doubled += n <= before
        contradicted += n > before + 1
        seen[key] = max(n, before)
    return {"rows": rows, "lost": records - rows, "doubled": doubled, "contradicted": contradicted}


pipeline = Pipeline("large-ledger")
settings = pipeline.settings
keys, rate = int(settings.get("keys", "1000")), float(settings.get("rate", "5000"))
out = Path(settings.get("out", "ledger.db"))

fill = pipeline.source("fill", GeneratedSource(lambda partition, i: filled(i), keys))
paced = GeneratedSource(lambda partition, i: live(i, keys), None, rate=rate)
steady = pipeline.source("live", Gated(paced, gate_of(out)))
(
    fill.union(steady)
    .key_by(lambda row: row[0])
    .count("count", parallelism=1)
    .filter("again", lambda row: row[1] > 1)
    .sink("out", SqliteSink(out))
)
