"""The keyed ledger at full throttle, whose last elements wait until the file `gate` is there.

Settings: out, count, gate.
"""

from __future__ import annotations

from benchmarks.jobs.keyed_ledger import PARTITIONS, make
from operators import Pipeline
from operators.sinks import SqliteSink
from tests.faults.pipelines.held_source import held_generated

pipeline = Pipeline("held-ledger")
settings = pipeline.settings
numbers = held_generated(settings["gate"], make, int(settings["count"]) // PARTITIONS, PARTITIONS)
(
    pipeline.source("numbers", numbers, parallelism=PARTITIONS)
    .key_by(lambda row: row[0])
    .count("count", parallelism=2)
    .sink("out", SqliteSink(settings["out"]))
)
