"""The rows of `benchmarks/jobs/counts.py`, which prove that each record was counted once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from benchmarks.harness import written
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
    counts = ((row["key"], row["n"], (row["partition"], row["v"])) for row in rows)
    return written.wrong(counts, PARTITIONS * count)
