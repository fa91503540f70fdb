"""Windows under test: a window's task fed with records and marks, cut into batches, and restored at any place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from causal.ports import Chain
from causal.records.batch import watermark
from operators import Pipeline
from operators.engine.plan import Plan, plan
from tests.unit.operators.scene import NoSink, Services, chain_of, config, listed, parts_of, records_in, source

S = 1_000_000_000
MS = 1_000_000

Row = tuple[Any, float, Any]
"""(key, time in seconds, value)"""


def second(record: Any) -> Any:
    return record[1]


def third(record: Any) -> Any:
    return record[2]


def windowed(*arguments: Any, late: bool = False, job: dict[str, Any] | None = None, **options: Any) -> Plan:
    """source `in` → watermarks → key_by the first field → window `w` → sink `out`; its late records → sink `late`."""
    pipeline = Pipeline("test")
    stream = pipeline.source("in", source()).watermarks("time", second)
    window = stream.key_by(lambda record: record[0]).window("w", *arguments, **options)
    window.sink("out", NoSink())
    if late:
        pipeline.stream("w").side("late").sink("late", NoSink())
    return plan(pipeline, config(**(job or {})))


def window_chain(*arguments: Any, **options: Any) -> Chain:
    return chain_of(windowed(*arguments, **options), "w/0")


class Driven:
    """The chain of one window, its output so far, and a standby that follows its snapshots."""

    def __init__(self, make: Callable[[], Chain]) -> None:
        self.chain, self.standby = make(), make()
        self.services = Services()
        self.out: list[Any] = []
        self.late: list[Any] = []

    def give(self, rows: Sequence[Row], mark_ns: int | None = None) -> list[Any]:
        """Return what the chain emits for one batch, and for the mark after it."""
        chunks = listed(rows) if rows else []
        if mark_ns is not None:
            chunks.append(watermark(mark_ns))
        return self._taken(self.chain.deliver(0, chunks, 0, self.services)) if chunks else []

    def finish(self) -> list[Any]:
        return self._taken(self.chain.finish(self.services))

    def fire(self, due_ns: int) -> list[Any]:
        return self._taken(self.chain.fire(due_ns, self.services))

    def _taken(self, outputs: Any) -> list[Any]:
        rows = records_in([output for output in outputs if output[0] == 0])
        self.late += records_in([output for output in outputs if output[0] == 1])
        self.out += rows
        return rows

    def restore(self, make: Callable[[], Chain]) -> None:
        """The standby takes over, and another one begins from a full snapshot."""
        self.standby.restore(parts_of(self.chain))
        self.chain, self.standby = self.standby, make()
        self.standby.restore(parts_of(self.chain, full=True))

    def snapshot(self) -> None:
        self.standby.restore(parts_of(self.chain))


def drive(make: Callable[[], Chain], batches: Iterable[Sequence[Row]], bound_ms: int, acts: Sequence[int]) -> Driven:
    """Return all batches, each with the mark that its records allow; `acts` says where a snapshot or a restore is."""
    driven, largest = Driven(make), -(1 << 60)
    for number, batch in enumerate(batches):
        largest = max([largest, *(round(row[1] * 1000) for row in batch)])
        driven.give(batch, (largest - bound_ms) * MS if batch else None)
        act = acts[number % len(acts)] if acts else 0
        if act == 1:
            driven.snapshot()
        elif act == 2:
            driven.restore(make)
    driven.finish()
    return driven
