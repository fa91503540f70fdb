"""The pipeline of `bad_input`: a keyed fold whose records, batches, operator or sink are as awkward as settings say.

Every record is (key, i, load).  The fold emits (key, n, sum of i) for every `emit`-th record of a key and once more at
the end, so that the rows alone show a record that was lost or doubled; `wrong` reads that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from benchmarks.harness.written import records_in
from causal.ports import Bundle, SinkStore
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sinks.sqlite.sqlite_store import SqliteStore
from operators.sources import GeneratedSource

Record = tuple[int, int, bytes]
KEYS = 97
HOT_KEY = 0
HOT_EVERY = 20
"""One record in this many has another key."""


def maker(hot: bool, load_bytes: int, giant_bytes: int, giant_every: int) -> Callable[[int, int], Record]:
    """Element i of the source."""
    load = b"x" * load_bytes

    def make(partition: int, i: int) -> Record:
        key = HOT_KEY if hot and i % HOT_EVERY else i % KEYS
        giant = giant_every and i % giant_every == giant_every - 1
        return key, i, b"y" * giant_bytes if giant else load

    return make


class Fold(Operator):
    """Counts and sums per key.

    Args:
        rounds: of a digest over the load, which is what it costs.
        sleep_s: how long each record takes besides.
    """

    def __init__(self, emit: int, rounds: int, sleep_s: float) -> None:
        self._emit = emit
        self._rounds = rounds
        self._sleep_s = sleep_s

    def process(self, record: Any, ctx: Any) -> Iterator[tuple[int, int, int]]:
        """Yield one more of this key."""
        key, i, load = record
        state = ctx.state
        for _ in range(self._rounds):
            blake2b(load).digest()
        if self._sleep_s:
            time.sleep(self._sleep_s)
        n = state["n"] = state.get("n", 0) + 1
        total = state["total"] = state.get("total", 0) + i
        if n % self._emit == 0:
            yield key, n, total

    def finish(self, ctx: Any) -> Iterator[tuple[int, int, int]]:
        """Return what each key has come to."""
        yield ctx.key, ctx.state["n"], ctx.state["total"]


class SlowSink(SqliteSink):
    """A sink that takes its time over every row."""

    row_s = 0.0

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task."""
        return _SlowStore(self, task, self.row_s)


class _SlowStore(SqliteStore):
    def __init__(self, sink: SqliteSink, task: str, row_s: float) -> None:
        super().__init__(sink, task)
        self._row_s = row_s

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`."""
        time.sleep(self._row_s * bundle.count)
        super().write(bundle)


def wrong(path: Path, count: int, hot: bool, emit: int) -> dict[str, int]:
    """Return faults of the rows by kind: keys whose rows are missing, doubled or false."""
    make = maker(hot, 0, 0, 0)
    expected: dict[int, list[list[int]]] = {}
    totals: dict[int, tuple[int, int]] = {}
    for i in range(count):
        key, _, _ = make(0, i)
        n, total = totals.get(key, (0, 0))
        totals[key] = n, total = n + 1, total + i
        if n % emit == 0:
            expected.setdefault(key, []).append([key, n, total])
    rows_of: dict[int, list[list[int]]] = {}
    for row in records_in(path):
        rows_of.setdefault(row[0], []).append(row)
    short = long = false = 0
    for key, (n, total) in totals.items():
        rows, due = rows_of.pop(key, []), [*expected.get(key, []), [key, n, total]]
        short += len(rows) < len(due)
        long += len(rows) > len(due)
        false += len(rows) == len(due) and rows != due
    return {"missing": short, "doubled": long + len(rows_of), "false": false}


pipeline = Pipeline("strained-fold")
settings = pipeline.settings


def number(name: str, default: float) -> float:
    """Return a setting."""
    return float(settings.get(name, str(default)))


SlowSink.row_s = number("sink_row_s", 0)
source = GeneratedSource(
    maker(
        settings.get("hot", "no") == "yes",
        int(number("load_bytes", 20)),
        int(number("giant_bytes", 0)),
        int(number("giant_every", 0)),
    ),
    int(number("count", 10_000)),
    1,
    number("rate", 0) or None,
)
(
    pipeline.source("numbers", source)
    .key_by(lambda record: record[0])
    .process(
        "fold",
        Fold(int(number("emit", 100)), int(number("rounds", 0)), number("sleep_s", 0)),
        parallelism=int(number("width", 2)),
    )
    .sink("out", SlowSink(settings.get("out", "fold.db")))
)
