"""Vectors through everything: a filter, a running count and a running sum by key, and windows, each to a sink.

The source does not end before the file `gate` is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import ArrowSource
from tests.faults.pipelines.held_source import hold_end

KEYS = 23

pipeline = Pipeline("columns")
settings = pipeline.settings


def numbered(partition: int, start: int, stop: int) -> Any:
    i = np.arange(start, stop)
    return {"k": (i * 7 + partition) % KEYS, "i": i, "p": np.full(stop - start, partition)}


def per_key(batch: Any, window: Any) -> Any:
    return pa.table(batch).group_by("k").aggregate([("i", "sum"), ("i", "count")])


source = ArrowSource(numbered, int(settings["count"]), 2, float(settings["rate"]))
rows = pipeline.source("read", hold_end(source, settings.get("gate")), 2)
odd = rows.filter("odd", lambda batch: pc.equal(pc.bit_wise_and(batch.column("i"), 1), 1))
odd.key_by("k").count("count", parallelism=2).sink("counts", JsonLinesSink(Path("counts")))
odd.key_by("k").sum("sum", "i", parallelism=1).sink("sums", JsonLinesSink(Path("sums")))
odd.key_by("k").window("window", 0.2, per_key, parallelism=1).sink("windows", JsonLinesSink(Path("windows")))
