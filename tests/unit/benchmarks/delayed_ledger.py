"""The job of `test_zero_point`: a paced source that is slow to open, and an operator that takes a known time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # `causal run` puts only this file's directory there

from benchmarks.jobs import stamped_ledger
from benchmarks.jobs.stamped_sink import StampedSink
from operators import Pipeline
from operators.source import PartitionReader, SourceContext
from operators.sources import GeneratedSource

OPENS_S, TAKES_S = 0.7, 0.02
RATE, COUNT = 40, 20
SEEN_BY_SOURCE = "began-in-the-source"


class SlowToOpen(GeneratedSource[Any]):
    """A source whose first element is due when the job begins to read, and waits until the source is open."""

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """See `Source.open`."""
        time.sleep(OPENS_S / stamped_ledger.PARTITIONS)
        (context.job_directory / SEEN_BY_SOURCE).write_text(str(context.began_ns))
        return super().open(partition, context)


class Count(stamped_ledger.Count):
    """A count that takes a known time for each element."""

    def process(self, record: Any, ctx: Any) -> Iterator[stamped_ledger.Row]:
        """Yield one row per element."""
        time.sleep(TAKES_S)
        yield from super().process(record, ctx)


pipeline = Pipeline("delayed-ledger")
(
    pipeline.source("numbers", SlowToOpen(stamped_ledger.make, COUNT, stamped_ledger.PARTITIONS, RATE))
    .key_by(lambda row: row[0])
    .process("count", Count(), parallelism=1)
    .sink("out", StampedSink(pipeline.settings.get("out", "ledger.db")))
)
