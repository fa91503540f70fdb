"""Numbered records that an operator holds back in tens per key, and a sink that, as it writes, kills what a test names.

The source stops after `first` records until the gate, a file, is there: then every key holds records, always as many.
Next to the database a file `kill-before` or `kill-after` has the pids that die then; none means the sink's own process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from causal.ports import Bundle, SinkStore
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sinks.sqlite.sqlite_store import SqliteStore
from operators.source import PartitionReader, Read, Source, SourceContext
from operators.sources import GeneratedSource

KEYS, GROUP = 8, 10
LOOK_S = 0.02


class GatedSource(Source):
    """One partition, of which the first elements are there immediately and the others when the gate is."""

    def __init__(self, first: int, count: int, gate: Path, rate: float | None) -> None:
        self.partitions = 1
        self.first, self.gate = first, gate
        self.all = GeneratedSource(lambda p, i: {"i": i, "k": i % KEYS}, count=count, rate=rate)

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        return GatedReader(self, self.all.open(partition, context))


class GatedReader:
    """Reads up to the gate, and on when that is there."""

    def __init__(self, source: GatedSource, whole: PartitionReader) -> None:
        self._source, self._whole = source, whole

    def read(self, position: int, count_max: int) -> Read | None:
        if not self._source.gate.exists():
            count_max = min(count_max, self._source.first - position)
        return self._whole.read(position, count_max) if count_max > 0 else None

    def ready_in_s(self, position: int) -> float:
        return LOOK_S

    def completed(self, position: int) -> None:
        """Nothing is held in memory, so nothing is let go."""

    def close(self) -> None:
        """Nothing is open."""


class Gather(Operator):
    """Gives the records of a key in tens, numbered, each with a draw that only a replay could repeat."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        gathered = [*ctx.state.get("held", []), record]
        if len(gathered) == GROUP:
            n = ctx.state.get("n", 0)
            for place, each in enumerate(gathered):
                yield {**each, "n": n + place + 1, "dice": ctx.random.random()}
            ctx.state["n"], gathered = n + GROUP, []
        ctx.state["held"] = gathered


class KillingSink(SqliteSink):
    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        return KillingStore(self, task)


class KillingStore(SqliteStore):
    def write(self, bundle: Bundle) -> None:
        self._kill("kill-before")
        super().write(bundle)
        self._kill("kill-after")

    def _kill(self, name: str) -> None:
        order = self._sink.path.with_name(name)
        if order.exists():
            pids = [int(pid) for pid in order.read_text().split()]
            order.unlink()
            for pid in pids or [os.getpid()]:
                os.kill(pid, signal.SIGKILL)


pipeline = Pipeline("guarantees")
settings = pipeline.settings
first, count = int(settings.get("first", "200")), int(settings.get("count", "400"))
rate = float(settings["rate"]) if "rate" in settings else None
(
    pipeline.source("numbers", GatedSource(first, count, Path(settings.get("gate", "gate")), rate))
    .key_by(lambda record: record["k"])
    .process("gather", Gather(), parallelism=int(settings.get("parallelism", "2")))
    .sink("out", KillingSink(settings.get("out", "out.db")))
)
