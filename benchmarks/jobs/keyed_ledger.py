"""The pipeline of `recovery`: (key, n) rows of a keyed running count, so that every row shows what came before it.

Row n of a key is there once and follows row n - 1, whatever was killed; `check` reads that from the sink alone.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.harness.written import records_in
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

KEYS = 10_000
PARTITIONS = 2


def make(partition: int, i: int) -> tuple[int, int]:
    """Element i of a partition: the keys in turn, scattered."""
    return (i * 7919 + partition * 4001) % KEYS, i


def check(path: Path, records: int) -> dict[str, int]:
    """Compare the rows in the sink with what the source gave.

    Args:
        records: how many entered, over all partitions.

    Returns:
        Counts: rows, lost, doubled, contradicted (a number out of turn); all but the first 0 if exactly once.
    """
    expected = Counter(make(p, i)[0] for p in range(PARTITIONS) for i in range(records // PARTITIONS))
    counts: Counter[int] = Counter()
    seen: set[tuple[int, int]] = set()
    rows = doubled = contradicted = 0
    for key, n in records_in(path):
        rows += 1
        if (key, n) in seen:
            doubled += 1
            continue
        seen.add((key, n))
        counts[key] += 1
        contradicted += n != counts[key]
    lost = sum((expected - counts).values())
    return {"rows": rows, "lost": lost, "doubled": doubled, "contradicted": contradicted}


pipeline = Pipeline("keyed-ledger")
count = int(pipeline.settings.get("count", "10000"))
rate = float(pipeline.settings.get("rate", "5000")) or None  # 0: as fast as they are taken
width = int(pipeline.settings.get("parallelism", "2"))

(
    pipeline.source("numbers", GeneratedSource(make, count // PARTITIONS, PARTITIONS, rate), parallelism=width)
    .key_by(lambda row: row[0])
    .count("count", parallelism=width)
    .sink("out", SqliteSink(pipeline.settings.get("out", "ledger.db")))
)
