"""A task that is fed by hand, in steps, with watermarks and restores among them; and its output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from causal.records.batch import RECORDS, WATERMARK, decode_records, stamp_of, watermark
from operators import Pipeline
from operators.builder.pipeline import KeyedStream, Stream
from operators.engine.plan import Plan, plan
from operators.stage.stages import Stage
from operators.stage.watermark_merge import END_NS, IDLE_NS
from tests.unit.operators.scene import NoSink, Services, chain_of, config, listed, parts_of, source

SECOND_NS = 1_000_000_000


def time_of(record: Any) -> float:
    """Records of these tests are (key, seconds, name)."""
    return float(record[1])


def key_of(record: Any) -> Any:
    return record[0]


def timed_source(pipeline: Pipeline, name: str) -> KeyedStream[Any, Any]:
    """Records with event time, by key."""
    return pipeline.source(name, source()).watermarks(f"{name}-time", time_of).key_by(key_of)


def planned_join(build: Callable[[KeyedStream[Any, Any], KeyedStream[Any, Any]], Stream[Any]], **settings: Any) -> Plan:
    """Return the plan of sources `a` and `b`, what `build` makes of them by key, and sink `out`."""
    pipeline = Pipeline("test")
    build(timed_source(pipeline, "a"), timed_source(pipeline, "b")).sink("out", NoSink())
    return plan(pipeline, config(**settings))


class Task:
    """One task that is fed by hand.

    Attributes:
        out: all records that it has emitted, in order.
        marks: all watermarks that it has passed on, in ns.
    """

    def __init__(self, job_plan: Plan, name: str) -> None:
        self._plan = job_plan
        self.name = name
        self.chain = chain_of(job_plan, name)
        self.services = Services()
        self.out: list[Any] = []
        self.marks: list[int] = []
        self._loaded: list[bytes] = []

    def _took(self, outputs: Sequence[Any]) -> list[Any]:
        records = []
        for _, chunk in outputs:
            if chunk.kind == RECORDS:
                records += decode_records(chunk.body)
            elif chunk.kind == WATERMARK:
                self.marks.append(stamp_of(chunk))
        self.out += records
        return records

    def give(self, input: int, *records: Any) -> list[Any]:
        """Record on one input, as one batch; what they bring."""
        return self._took(self.chain.deliver(input, listed(list(records)), 0, self.services))

    def mark(self, seconds: float, inputs: Iterable[int] = (0, 1)) -> list[Any]:
        """Deliver a watermark on these inputs and return what the task emits."""
        records = []
        for input in inputs:
            mark = watermark(round(seconds * SECOND_NS))
            records += self._took(self.chain.deliver(input, [mark], 0, self.services))
        return records

    def fire(self, at_s: float) -> list[Any]:
        """Fire the timers due at a time by the wall clock and return what the task emits."""
        return self._took(self.chain.fire(round(at_s * SECOND_NS), self.services))

    def idle(self, *inputs: int) -> None:
        """Nothing comes on these inputs for now."""
        for input in inputs:
            self._took(self.chain.deliver(input, [watermark(IDLE_NS)], 0, self.services))

    def end(self, *inputs: int) -> list[Any]:
        """End these inputs and return what the task emits."""
        records = []
        for input in inputs:
            records += self._took(self.chain.ended(input, self.services))
        return records

    def finish(self) -> list[Any]:
        """All has ended."""
        return self._took(self.chain.finish(self.services))

    def restore(self, full: bool = False) -> None:
        """Take a snapshot, and continue as another process from it and those before."""
        parts = parts_of(self.chain, full)
        self._loaded = parts if full else [*self._loaded, *parts]
        self.chain = chain_of(self._plan, self.name)
        self.chain.restore(self._loaded)

    def entry_count(self) -> int:
        """Return the number of entries of all its tables."""
        stages: list[Stage] = self.chain._stages  # type: ignore[attr-defined]
        return sum([len(table.values) for stage in stages for table in stage.tables()])


__all__ = ["END_NS", "IDLE_NS", "SECOND_NS", "Task", "key_of", "planned_join", "time_of", "timed_source"]
