"""Measures what each sink stores per second: bundles of one row, and rows in bundles of a thousand; one task writes.

`cpu_us` is what the sink's own process computes per row of the larger bundles, which noise of a machine leaves alone.
Every bundle carries determinants and is one atomic step of the store, as in a job.  `os` are sinks that wait for the
disk; PostgreSQL and Redis (appendfsync always) always do, `redis_unsynced` has appendfsync no.  Sinks take turns
within a round.  A sink without its server, client or library is left out, and named.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.servers.postgres import cluster, postgres
from benchmarks.servers.process import NoServer
from benchmarks.servers.redis import redis_server
from causal.errors import PipelineError
from causal.logs.log import LogDelta
from causal.ports import Bundle, SinkStore
from operators.sinks import JsonLinesSink, PostgresSink, RedisSink, Sink, SqliteSink

TASK = "out/0"
SIZES = {"bundles_s": 1, "rows_s": 1000}
"""Figure → rows of a bundle."""
LOGGED_BYTES = 12
"""Determinants of each bundle."""
OWN = "CREATE TABLE IF NOT EXISTS own(key text, n bigint, share double precision)"


def record(position: int) -> dict[str, Any]:
    """Return a row of about 60 bytes."""
    return {"key": f"key-{position * 7919 % 10_007}", "n": position, "share": position / 7}


class Writer:
    """Writes bundles to one store, one after the other."""

    def __init__(self, sink: Sink, directory: Path) -> None:
        self._store: SinkStore = sink.open_store(TASK, directory)
        self._next = self._store.open(TASK, "benchmark", 1).next
        self._logged = 0
        self._rows = {count: sink.encode([record(n) for n in range(count)]) for count in SIZES.values()}

    def write(self, count: int) -> None:
        """One bundle of that many rows."""
        log = LogDelta(0, 0, self._logged, bytes(LOGGED_BYTES))
        self._store.write(Bundle(self._next, count, self._rows[count], self._next, 0, 1, (log,)))
        self._next, self._logged = self._next + count, self._logged + LOGGED_BYTES

    def close(self) -> None:
        self._store.close()


@dataclass(frozen=True)
class Candidates:
    """The sinks that are measured, by name, and why others are not."""

    writers: dict[str, Callable[[], Writer]]
    missing: dict[str, str]


@contextmanager
def candidates(directory: Path) -> Iterator[Candidates]:
    """Yield all sinks that can be had here, on servers that run until the end."""
    writers: dict[str, Callable[[], Writer]] = {}
    missing: dict[str, str] = {}

    def add(name: str, make: Callable[[], Sink]) -> None:
        writers[name] = lambda: Writer(make(), directory)

    for durability in ("process", "os"):
        label = "" if durability == "process" else "_os"
        add(f"sqlite{label}", lambda d=durability: SqliteSink(directory / f"{d}.db", durability=d))  # type: ignore[misc]
        add(f"jsonlines{label}", lambda d=durability: JsonLinesSink(directory / f"lines-{d}", durability=d))  # type: ignore[misc]
    add("parquet", lambda: _parquet(directory))
    with ExitStack() as stack:
        try:
            dsn = stack.enter_context(postgres(stack.enter_context(cluster()))).dsn
            add("postgres", lambda: PostgresSink(dsn))
            add("postgres_columns", lambda: _own_table(dsn))
        except (NoServer, ImportError) as problem:
            missing["postgres"] = str(problem)
        try:
            synced, unsynced = (stack.enter_context(redis_server(appendfsync=each)).url for each in ("always", "no"))
            add("redis", lambda: RedisSink(synced))
            add("redis_unsynced", lambda: RedisSink(unsynced))
        except (NoServer, ImportError) as problem:
            missing["redis"] = str(problem)
        yield Candidates(writers, missing)


def _parquet(directory: Path) -> Sink:
    from operators.sinks import ParquetSink

    return ParquetSink(directory / "parquet")


def _own_table(dsn: str) -> Sink:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(OWN)
    return PostgresSink(dsn, table="own", columns=["key", "n", "share"])


OPTIONS = (Option("rounds", 5), Option("seconds", 1.0, "of each sink and size in a round"))


def _measure(run: Measurement) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="sinks-") as directory, candidates(Path(directory)) as wanted:
        writers: dict[str, Writer] = {}
        missing = dict(wanted.missing)
        for name, make in wanted.writers.items():
            try:
                writers[name] = make()
            except PipelineError as problem:
                missing[name] = str(problem)
        for name, reason in missing.items():
            run.report(f"{name} is left out: {reason}")
        if not writers:
            raise runs.RunFailed("there is no sink to measure")
        for number in run.rounds():
            for name, writer in writers.items():
                for label, count in SIZES.items():
                    rows_s, cpu_us = _rates(writer, count, run.options.seconds)
                    run.add(f"{name}_{label}", rows_s)
                run.add(f"{name}_cpu_us", cpu_us)
            run.report(f"round {number}: done")
        for writer in writers.values():
            writer.close()
    return {"left_out": missing}


def _rates(writer: Writer, count: int, seconds: float) -> tuple[float, float]:
    """Return rows per second in bundles of that many, and this process's CPU time per row in microseconds."""
    writer.write(count)
    began, cpu_began = time.perf_counter(), time.process_time()
    written = 0
    while (took := time.perf_counter() - began) < seconds:
        writer.write(count)
        written += count
    return written / took, (time.process_time() - cpu_began) / written * 1e6


BENCHMARK = Benchmark("sinks", OPTIONS, _measure, digits=0, digits_of={"_us": 2}, settings={"rows_of_a_bundle": SIZES})
