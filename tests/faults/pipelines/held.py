"""The fraud chain with sources that hold back their end until a file is there, so a test decides how long it runs.

Which elements there are is fixed all the same: they come at a pace, and as fast as they are taken once it is there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # `causal run` puts only this file's directory there

from examples.fraud_chain import Ledger, Score, payment, total
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.sources.base import PartitionReader, Read, Source, SourceContext

LOOK_S = 0.02


class HeldSource(Source):
    """One partition of `count` elements; the last one waits for the gate, a file."""

    def __init__(self, name: str, count: int, rate: float, gate: Path) -> None:
        self.partitions = 1
        self.count, self.gate = count, gate
        self._paced = GeneratedSource(payment(name), count=count, rate=rate)
        self._free = GeneratedSource(payment(name), count=count)

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        return HeldReader(self, self._paced.open(partition, context), self._free.open(partition, context))


class HeldReader:
    """Reads at a pace up to the last element, and without one when the gate is there."""

    def __init__(self, source: HeldSource, paced: PartitionReader, free: PartitionReader) -> None:
        self._source, self._paced, self._free = source, paced, free

    def read(self, position: int, count_max: int) -> Read | None:
        if self._source.gate.exists():
            return self._free.read(position, count_max)
        left = self._source.count - 1 - position
        return self._paced.read(position, min(count_max, left)) if left > 0 else None

    def ready_in_s(self, position: int) -> float:
        return min(LOOK_S, self._paced.ready_in_s(position)) or LOOK_S

    def completed(self, position: int) -> None:
        """Nothing is held in memory, so nothing is let go."""

    def close(self) -> None:
        """Nothing is open."""


pipeline = Pipeline("held")
settings = pipeline.settings
count, rate, gate = int(settings["count"]), float(settings["rate"]), Path(settings["gate"])


def card(record: Any) -> Any:
    """The key of every stage."""
    return record["card"]


shop = pipeline.source("shop", HeldSource("shop", count, rate, gate))
web = pipeline.source("web", HeldSource("web", count, rate, gate))
scored = shop.union(web).key_by(card).process("score", Score(), parallelism=2)
totals = scored.key_by(card).window("totals", 0.2, total, parallelism=2)
ledger = totals.key_by(card).process("ledger", Ledger(), parallelism=1)
scored.union(ledger).sink("out", SqliteSink(settings["out"]))
