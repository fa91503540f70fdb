"""A task's surroundings in tests: services that record when live and replay what they recorded, and small pipelines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from causal.config import JobConfig
from causal.errors import ReplayDivergence
from causal.ports import Chain, Output, SinkStore
from causal.records.batch import LISTED, RECORDS, Chunk, decode_records, encode_records
from operators import KeyedStream, Pipeline
from operators.builder.pipeline import Stream
from operators.engine.plan import Plan, plan
from operators.sinks.contract.sink import Sink
from operators.sources import SequenceSource
from operators.testing import TrialResult, run


class Services:
    """Live without a `log`; otherwise each answer must be the next entry of it.

    The clock moves by one millisecond with each reading, chance comes from a seed.
    """

    def __init__(self, log: Sequence[tuple[str, Any]] | None = None, start_ns: int = 1_000_000_000_000) -> None:
        self.log: list[tuple[str, Any]] = list(log or [])
        self.place = 0
        self.live = log is None
        self.clock_ns = start_ns
        self.epoch_now = 0
        self._entropy = Random(7)
        self._seeds: dict[int, bytes] = {}

    def _answer(self, kind: str, ask: Callable[[], Any]) -> Any:
        if self.live:
            answer = ask()
            self.log.append((kind, answer))
            return answer
        if self.place >= len(self.log) or self.log[self.place][0] != kind:
            raise ReplayDivergence("scene", f"asked for {kind} at {self.place} of {self.log}")
        self.place += 1
        return self.log[self.place - 1][1]

    def _tick(self) -> int:
        self.clock_ns += 1_000_000
        return self.clock_ns

    def now_ns(self) -> int:
        return int(self._answer("clock", self._tick))

    def seed(self) -> bytes:
        if self.epoch_now not in self._seeds:
            self._seeds[self.epoch_now] = self._answer("seed", lambda: self._entropy.randbytes(16))
        return self._seeds[self.epoch_now]

    def epoch(self) -> int:
        return self.epoch_now

    def replaying(self) -> bool:
        return not self.live

    def call(self, ask: Callable[[], bytes]) -> bytes:
        return bytes(self._answer("call", ask))

    def user(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        return bytes(self._answer(f"user {kind}", ask))

    def window(self, operator: int, end_ns: int, intervals: Sequence[tuple[int, int]]) -> None:
        stated = (operator, end_ns, tuple(intervals))
        logged = self._answer("window", lambda: stated)
        if logged != stated:
            raise ReplayDivergence("scene", f"a window fires as {stated}, the log has {logged}")


class NoSink(Sink):
    """Encodes as every sink does; its store is never opened."""

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        raise NotImplementedError


def source(partitions: int = 1) -> SequenceSource:
    return SequenceSource(lambda partition, start, stop: list(range(start, stop)), 10, partitions)


def config(**settings: Any) -> JobConfig:
    return JobConfig("run", "test", "/pipeline.py", **settings)


def planned(build: Callable[[Stream[Any]], Stream[Any]], partitions: int = 1, **settings: Any) -> Plan:
    """Return the plan of source `in`, what `build` adds, sink `out`."""
    pipeline = Pipeline("test")
    build(pipeline.source("in", source(partitions))).sink("out", NoSink())
    return plan(pipeline, config(**settings))


def ran(build: Callable[[Any], Any], records: Any, **settings: Any) -> TrialResult:
    """Run source `in` of these records, what `build` adds, and sink `out` in the kit."""
    pipeline = Pipeline("test")
    build(pipeline.source("in", source())).sink("out", NoSink())
    return run(pipeline, {"in": records}, **settings)


def chain_of(job_plan: Plan, name: str) -> Chain:
    task = job_plan.topology.named(name)
    assert task is not None, [task.name for task in job_plan.topology.tasks]
    return job_plan.chain(task.index)


def keyed(build: Callable[[KeyedStream[Any, Any]], Stream[Any]], name: str, **settings: Any) -> Chain:
    """Return the chain of task `name`, built after a key_by of each record's first field."""
    return chain_of(planned(lambda stream: build(stream.key_by(first_field)), **settings), name)


def first_field(record: Any) -> Any:
    return record[0]


def listed(records: Sequence[Any]) -> list[Chunk]:
    return [Chunk(LISTED, len(records), list(records))]


def records_chunk(records: Sequence[Any], origin_ns: int = 0) -> Chunk:
    return Chunk(RECORDS, len(records), encode_records(records), origin_ns)


def give(chain: Chain, records: Sequence[Any], services: Services | None = None, first: int = 0) -> list[Any]:
    """Return what the chain emits for the records, all outputs together."""
    return records_in(chain.deliver(0, listed(records), first, services or Services()))


def records_in(outputs: Sequence[Output]) -> list[Any]:
    return [record for _, chunk in outputs if chunk.kind == RECORDS for record in decode_records(chunk.body)]


def parts_of(chain: Chain, full: bool = False) -> list[bytes]:
    """Return a snapshot, encoded in one step."""
    job = chain.snapshot(full)
    while not job.step(100):
        pass
    return list(job.parts())
