"""Readers of a sink of each kind, as other programs have them: the present rows, by task, in order.

Each raises `AssertionError` for what no reader may see: a hole, a half row, a file that changes.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.servers.postgres import Postgres
from benchmarks.servers.redis import Redis

Rows = dict[str, list[str]]
"""Task → its rows as text."""
Look = Callable[[], Rows]


PAUSE_S = 0.3


class Reader:
    """Looks in a thread of its own until it is stopped, and a last time then."""

    def __init__(self, name: str, look: Look) -> None:
        self.name = name
        self.seen: Rows = {}
        self.looks = 0
        self.changes = 0
        """The number of looks that have found more rows than the look before them."""
        self.wrong: list[str] = []
        self._rows_now = look
        self._looking = threading.Lock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._until_the_end)

    def begin(self) -> None:
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(row) for rows in self.seen.values() for row in rows]

    def said(self) -> tuple[str, ...]:
        """Return its rows, whatever the order."""
        return tuple(sorted(json.dumps(row, sort_keys=True) for row in self.records()))

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        self.look()

    def _until_the_end(self) -> None:
        while not self._ends.wait(PAUSE_S) and not self.wrong:
            self.look()

    def look(self) -> None:
        """Read the present rows; to be called where something must have been seen, however busy the machine is."""
        with self._looking:
            try:
                self._compare(self._rows_now())
            except Exception as problem:  # whatever a reader meets is a finding, which the thread of the test must see
                self.wrong.append(f"{self.name}: {problem!r}")

    def _compare(self, now: Rows) -> None:
        for task, before in self.seen.items():
            assert now.get(task, [])[: len(before)] == before, f"{task}: what was seen has changed"
        for task, rows in now.items():
            for row in rows[len(self.seen.get(task, [])) :]:
                json.loads(row)
        self.changes += sum(map(len, now.values())) > self.count
        self.seen = now
        self.looks += 1


@contextmanager
def reading(looks: Mapping[str, Look]) -> Iterator[list[Reader]]:
    started = [Reader(name, look) for name, look in looks.items()]
    for each in started:
        each.begin()
    try:
        yield started
    finally:
        for each in started:
            each.end()


def in_order(listed: Iterable[tuple[str, int, str]]) -> Rows:
    """Rows that say their places."""
    rows: Rows = defaultdict(list)
    for task, position, record in listed:
        assert position == len(rows[task]), f"{task}: row {position} follows {len(rows[task])} rows"
        rows[task].append(record)
    return rows


def of_sqlite(path: Path) -> Look:
    """A connection of its own, which stays open."""
    connections: list[sqlite3.Connection] = []

    def look() -> Rows:
        if not connections:
            if not path.exists():
                return {}
            connections.append(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10, check_same_thread=False))
        [database] = connections
        if not database.execute("SELECT name FROM sqlite_master WHERE name = 'output'").fetchall():
            return {}
        return in_order(database.execute("SELECT task, position, record FROM output ORDER BY task, position"))

    return look


def of_lines(directory: Path) -> Look:
    """`tail -f`: files that stay open.  No byte that was read may change, also where a line lacks its newline."""
    read: dict[Path, bytes] = {}
    files: dict[Path, Any] = {}

    def look() -> Rows:
        rows: Rows = {}
        for path in sorted(directory.glob("*.jsonl")):
            file = files.setdefault(path, path.open("rb"))
            read[path] = read.get(path, b"") + file.read()
            assert path.read_bytes().startswith(read[path]), f"{path.name} has changed where it was read already"
            rows[path.stem] = read[path][: read[path].rfind(b"\n") + 1].decode().splitlines()
        return rows

    return look


def of_parquet_files(directory: Path) -> Look:
    """A reader that lists the files: they are whole from the moment they have their names, and never change."""
    import pyarrow.parquet as parquet

    contents: dict[Path, bytes] = {}
    rows_of: dict[Path, list[Any]] = {}

    def look() -> Rows:
        there = sorted(directory.glob("*.parquet"))
        assert contents.keys() <= set(there), "a file is gone"
        for path in there:
            content = contents.setdefault(path, path.read_bytes())
            assert path.read_bytes() == content, f"{path.name} has changed"
            if path not in rows_of:
                rows_of[path] = parquet.read_table(path).to_pylist()
        listed = []
        for path in there:  # <task>-<first position>-<position after the last>
            task, first, behind = path.stem.rsplit("-", 2)
            assert len(rows_of[path]) == int(behind) - int(first), f"{path.name} lacks rows"
            listed += [(task, int(first) + at, _text(row)) for at, row in enumerate(rows_of[path])]
        return in_order(listed)

    return look


def of_parquet(directory: Path) -> Look:
    """The reader of this package, which also sees what is in no file yet."""
    from operators.outputs import open_output

    outputs: list[Any] = []

    def look() -> Rows:
        if not (directory / "_causal" / "manifest.json").exists():
            return {}
        if not outputs:
            outputs.append(open_output(directory))
        [output] = outputs
        output.look()
        listed = []
        for task, end in output.ends(uncovered=True).items():
            for positions, batch in output.rows(task, 0, end):
                rows = zip(positions.to_pylist(), batch.to_pylist(), strict=True)
                listed += [(task, position, _text(row)) for position, row in rows]
        return in_order(listed)

    return look


def of_postgres(server: Postgres, table: str) -> Look:
    """Each look is a connection and a query of its own."""
    tables: list[str] = []

    def look() -> Rows:
        if not tables:
            tables.extend(name for (name,) in server.query("SELECT to_regclass(%s)::text", table) if name)
        if not tables:
            return {}
        return in_order(server.query(f"SELECT task, position, record::text FROM {table} ORDER BY task, position"))

    return look


def of_redis(server: Redis, stream: str, tasks: Iterable[str]) -> Look:
    """All of the streams, each time."""

    def look() -> Rows:
        with server.client() as client:
            entries = [(task, *entry) for task in tasks for entry in client.xrange(f"{stream}:{task}")]
        return in_order((task, int(place.removesuffix("-1")), fields["record"]) for task, place, fields in entries)

    return look


def _text(row: Any) -> str:
    return json.dumps(row, sort_keys=True)
