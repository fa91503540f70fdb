"""Windows under test: a window's task fed with records and marks, cut into batches, and restored at any place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from causal.ports import Chain
from causal.records.batch import watermark
from operators import Aggregate, Pipeline, Window
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


# Drawn runs, and contents that show each value.

BOUND_MS = 700
STEPS = st.tuples(st.sampled_from("abc"), st.integers(0, 900), st.integers(0, BOUND_MS))


@st.composite
def batches(draw: Any) -> list[list[Row]]:
    """Draw records, none further behind the largest time than the bound, cut into batches."""
    drawn: list[list[Row]] = []
    now_ms = number = 0
    for batch in draw(st.lists(st.lists(STEPS, min_size=1, max_size=6), max_size=6)):
        drawn.append([])
        for key, step_ms, back_ms in batch:
            now_ms, number = now_ms + step_ms, number + 1
            drawn[-1].append((key, max(0, now_ms - back_ms) / 1000, number))
    return drawn


def values_of_window(key: Any, records: list[Any], window: Window) -> Any:
    yield (key, tuple(sorted(record[2] for record in records)), window.start, window.end)


def collected() -> Aggregate[Any, Any]:
    def add(values: list[int], record: Row) -> list[int]:
        values.append(record[2])
        return values

    return Aggregate(list, add, result=lambda values: tuple(sorted(values)))


def merged() -> Aggregate[Any, Any]:
    plain = collected()
    return Aggregate(plain.initial, plain.add, plain.result, merge=lambda first, later: first + later)
