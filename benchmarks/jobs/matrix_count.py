"""The pipeline of `matrix`: a keyed count of any width, depth, key count, skew and record size, and its check.

Records are `(key, payload)`; a row of the sink is `(key, n)`, so that every row shows what came before it, and rows
are packed, so that the sink is no brake on what is measured.
"""

from __future__ import annotations

import random
import sqlite3
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.harness.tally import TallySink
from benchmarks.harness.written import rows_in
from benchmarks.peers.programs.inputs import repeated
from causal.config import JobConfig
from causal.logs.log import LogDelta
from causal.ports import Bundle, SinkStore
from operators import Pipeline
from operators.records.keys import key_group, task_of_group
from operators.sinks.sqlite.sqlite_sink import SqliteStore
from operators.sources import SequenceSource

PARTITIONS = 2
ROWS_MIN = 1 << 18
"""Records that are made once and read over and over; at least one for each key."""
PAYLOADS = 64
"""Number of different payloads, which come in turn."""
SKEWS = ("uniform", "zipf", "one")
HOT_KEY = 1
"""A key that every skew has, and the one that comes most often if one does."""
_TABLE = "CREATE TABLE IF NOT EXISTS packed(task TEXT, first INTEGER, rows BLOB, PRIMARY KEY(task, first))"


def keys_of(skew: str, keys: int) -> list[int]:
    """The keys of the records in the order in which they come: 0 … keys - 1 in turn of chance, log-uniform, or one."""
    chance = random.Random(42)
    rows = max(ROWS_MIN, keys)
    if skew == "one":
        return [HOT_KEY] * rows
    if skew == "zipf":
        return [int(keys ** chance.random()) for _ in range(rows)]
    every = list(range(keys))
    chance.shuffle(every)
    return (every * -(-rows // keys))[:rows]


def owner(parallelism: int) -> int:
    """Returns which counting task has the hot key."""
    groups = JobConfig("matrix", "matrix", "matrix").key_groups
    return task_of_group(key_group(HOT_KEY, groups), parallelism, groups)


class Records(SequenceSource[Any]):
    """The records, made when a partition is opened, before the first one enters."""

    def __init__(self, skew: str, keys: int, record_bytes: int, count: int) -> None:
        super().__init__(self.slices, count, PARTITIONS)
        self._shape = (skew, keys, record_bytes)
        self._table: list[Any] = []

    def open(self, partition: int, context: Any) -> Any:
        self.make()
        return super().open(partition, context)

    def make(self) -> None:
        """Make the table."""
        skew, keys, record_bytes = self._shape
        chance = random.Random(7)
        payloads = [chance.randbytes(record_bytes) for _ in range(PAYLOADS)]
        self._table = list(zip(keys_of(skew, keys), cycle(payloads)))

    def slices(self, partition: int, start: int, stop: int) -> list[Any]:
        """Elements `start` to `stop` of a partition, each of which begins at another place of the table."""
        return repeated(self._table, start + partition * (len(self._table) // PARTITIONS), stop - start)


class PackedSink(TallySink):
    """Rows `(key, n)` of a bundle as one blob of 8-byte integers, in the transaction that has the position."""

    def encode(self, records: Sequence[Any]) -> bytes:
        """16 bytes a row."""
        return array("q", chain.from_iterable(records)).tobytes()

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        return PackedStore(self, task)


class PackedStore(SqliteStore):
    """One sink task's rows and positions."""

    _bundle: Bundle | None = None

    def write(self, bundle: Bundle) -> None:
        self._bundle = bundle
        super().write(bundle)

    def _store_deltas(self, db: sqlite3.Connection, fresh: tuple[LogDelta, ...]) -> None:
        """Called inside the transaction, for a bundle that is not there yet."""
        super()._store_deltas(db, fresh)
        if self._bundle is not None and self._bundle.count:
            db.execute(_TABLE)
            db.execute("INSERT INTO packed VALUES(?, ?, ?)", (self._task, self._bundle.first, bytes(self._bundle.rows)))


def check(path: Path, skew: str, keys: int, records: int) -> dict[str, int]:
    """Compare the rows in the sink with what the source gave.

    Args:
        records: how many entered, over all partitions.

    Returns:
        Counts: rows, lost, doubled, contradicted (a number out of turn); all but the first 0 if exactly once.
    """
    highest: dict[int, int] = {}
    rows = doubled = contradicted = 0
    for (blob,) in rows_in(path, "SELECT rows FROM packed ORDER BY task, first"):
        numbers = array("q")
        numbers.frombytes(blob)
        rows += len(numbers) // 2
        for key, n in zip(numbers[::2], numbers[1::2], strict=True):
            last = highest.get(key, 0)
            if n != last + 1:
                doubled += n <= last
                contradicted += n > last
            highest[key] = max(n, last)
    expected = expected_of(keys_of(skew, keys), records)
    lost = sum(max(0, count - highest.get(key, 0)) for key, count in expected.items())
    contradicted += sum(max(0, n - expected.get(key, 0)) for key, n in highest.items())
    return {"rows": rows, "lost": lost, "doubled": doubled, "contradicted": contradicted}


def expected_of(table: Sequence[int], records: int) -> Counter[int]:
    """Returns how often each key entered."""
    counted: Counter[int] = Counter()
    for partition in range(PARTITIONS):
        begin = partition * (len(table) // PARTITIONS)
        counted.update(islice(cycle([*table[begin:], *table[:begin]]), records // PARTITIONS))
    return counted


pipeline = Pipeline("matrix-count")
settings = pipeline.settings
count = int(settings.get("count", "100000"))
parallelism, depth = int(settings.get("parallelism", "2")), int(settings.get("depth", "1"))
skew, keys = settings.get("skew", "zipf"), int(settings.get("keys", "10000"))

records = Records(skew, keys, int(settings.get("record_bytes", "16")), count // PARTITIONS)
stream = pipeline.source("rows", records, PARTITIONS)
for stage in range(depth):
    stream = stream.key_by(lambda row: row[0]).count(f"count{stage}", parallelism=parallelism)
stream.sink("out", PackedSink(settings.get("out", "matrix.db")))
