"""The rows of `benchmarks/jobs/counts.py`, which prove that each record was counted once."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from benchmarks.harness.runs import JOBS
from benchmarks.hosts.site import Site
from examples.hosts.job import ClusterJob

PIPELINE = JOBS / "counts.py"
PARTITIONS = 2


def rows_of(site: Site | ClusterJob) -> list[dict[str, Any]]:
    """Return the rows of the job, in the order of their positions."""
    with closing(sqlite3.connect(site.directory / "out.db", timeout=10)) as db:
        return [json.loads(row) for (row,) in db.execute("SELECT record FROM output ORDER BY position")]


def wrong(rows: Iterable[dict[str, Any]], count: int) -> dict[str, int]:
    """Count the faults of the rows of a whole job: records without a row, with several, and counts out of turn."""
    turns: dict[int, int] = {}
    seen: Counter[tuple[int, int]] = Counter()
    contradicted = 0
    for row in rows:
        contradicted += row["n"] != turns.get(row["key"], 0) + 1
        turns[row["key"]] = row["n"]
        seen[row["partition"], row["v"]] += 1
    expected = {(partition, v) for partition in range(PARTITIONS) for v in range(count)}
    doubled = sum(seen.values()) - len(seen)
    return {"lost": len(expected - seen.keys()), "doubled": doubled, "contradicted": contradicted}
