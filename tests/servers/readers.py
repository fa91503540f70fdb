"""Readers of a sink of each kind, as other programs have them: the present rows, by task, in order.

Each raises `AssertionError` for what no reader may see: a hole, a half row, a file that changes.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.servers.postgres import Postgres
from benchmarks.servers.redis import Redis

Rows = dict[str, list[str]]
"""Task → its rows as text."""
Look = Callable[[], Rows]


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
