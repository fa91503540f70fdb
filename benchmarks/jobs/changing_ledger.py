"""The pipeline of `change`: rows of a keyed count that name the task and the version, and rows of an operator apart.

`apart` has source, operator and sink of its own and is never changed itself.  A file for each source says where it
ends.  Each version of the code is a copy of this file with another `VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.written import records_in, wrong
from benchmarks.jobs.gated import Gated
from benchmarks.jobs.stamped_sink import StampedSink
from operators import Operator, Pipeline
from operators.sources import GeneratedSource

VERSION = 1
PARTITIONS = 2

Row = tuple[int, int, int, int, int, int]
"""Key, its number, partition, element, counting task, version."""


def make(partition: int, i: int, keys: int) -> tuple[int, int, int]:
    """Element i of a partition: the keys in turn, scattered."""
    return (i * 7919 + partition * 4001) % keys, partition, i


class Count(Operator):
    """A running count per key."""

    def process(self, record: Any, ctx: Any) -> Iterator[Row]:
        """Yield one row per element."""
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        key, partition, i = record
        yield key, n, partition, i, int(ctx.task.rpartition("/")[2]), VERSION


class Number(Operator):
    """Numbers all records of its only task."""

    def process(self, record: int, ctx: Any) -> Iterator[tuple[int, int, int]]:
        """Yield one row per element: number, element, version."""
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield n, record, VERSION


def text_of(version: int) -> str:
    """Return the code of a version."""
    return Path(__file__).read_text().replace("\nVERSION = 1\n", f"\nVERSION = {version}\n")


def gate_of(out: Path, source: str) -> Path:
    """Return the file that ends a source."""
    return out.with_name(f"{source}.gate")


def database_apart(out: Path) -> Path:
    """Return where the rows of `apart` are, in addition to `out`."""
    return out.with_name("apart.db")


def check(out: Path, elements: int, elements_apart: int) -> dict[str, int]:
    """Return how many rows there are, and their faults by kind.

    Args:
        elements: of each partition.
    """
    counted = records_in(out)
    faults = [
        wrong(((key, n, (partition, i)) for key, n, partition, i, *_ in counted), PARTITIONS * elements),
        wrong((("apart", n, i) for n, i, _ in records_in(database_apart(out))), elements_apart),
    ]
    sums = {name: sum(each[name] for each in faults) for name in faults[0]}
    return {"rows": PARTITIONS * elements + elements_apart - sums["lost"] + sums["doubled"], **sums}


def tasks_of(rows: Iterable[Row]) -> set[int]:
    """Return the counting tasks that put out some of these rows."""
    return {row[4] for row in rows}


pipeline = Pipeline("changing-ledger")
settings = pipeline.settings
keys, tasks = int(settings.get("keys", "100000")), int(settings.get("tasks", "2"))
rate, rate_apart = float(settings.get("rate", "5000")), float(settings.get("rate_apart", "1000"))
out = Path(settings.get("out", "ledger.db"))

numbers = GeneratedSource(lambda partition, i: make(partition, i, keys), None, PARTITIONS, rate)
(
    pipeline.source("numbers", Gated(numbers, gate_of(out, "numbers")), parallelism=PARTITIONS)
    .key_by(lambda row: row[0])
    .process("count", Count(), parallelism=tasks)
    .sink("out", StampedSink(out))
)
elements = GeneratedSource(lambda partition, i: i, None, rate=rate_apart)
(
    pipeline.source("apart", Gated(elements, gate_of(out, "apart")))
    .process("number", Number())
    .sink("apart-out", StampedSink(database_apart(out)))
)
