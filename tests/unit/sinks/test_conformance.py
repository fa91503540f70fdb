"""Every sink that ships keeps every promise of the kit."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.tally import TallySink
from causal.errors import Superseded
from causal.storage.lock import FileLock
from operators.sinks import JsonLinesSink, SqliteSink, conformance
from operators.sinks.conformance import Subject, returning, upserting, withdrawal
from tests.members import campaign
from tests.unit.sinks.bounded import in_bounds


def rows_in_sqlite(path: Path, task: str) -> list[Any]:
    db = sqlite3.connect(path)
    try:
        rows = db.execute("SELECT position, record FROM output WHERE task = ? ORDER BY position", (task,)).fetchall()
    finally:
        db.close()
    assert [position for position, _ in rows] == sorted({position for position, _ in rows})
    return [json.loads(record) for _, record in rows]


def rows_in_lines(path: Path) -> list[Any]:
    text = path.read_text() if path.exists() else ""
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def rows_in_tally(path: Path, task: str) -> int:
    db = sqlite3.connect(path)
    try:
        (rows,) = db.execute("SELECT rows FROM tally WHERE task = ?", (task,)).fetchone()
    finally:
        db.close()
    return int(rows)


@contextmanager
def locked_database(path: Path) -> Iterator[None]:
    """Another connection writes into it, and does not commit."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
        db.close()


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    lock = FileLock(path)
    assert lock.acquire(0)
    try:
        yield
    finally:
        lock.close()


def seven_is_enough(path: Path) -> Any:
    """Return a user's own rule; a record that breaks it."""
    db = sqlite3.connect(path)
    db.execute(
        """CREATE TRIGGER rule BEFORE INSERT ON output WHEN json_extract(NEW.record, '$.n') > 1000
        BEGIN SELECT RAISE(ABORT, 'n is too\nlarge'); END"""
    )
    db.close()
    return {"n": 1001}


def sqlite(directory: Path, **options: Any) -> Subject:
    sink = SqliteSink(directory / "out.db", busy_ms=50, **options)
    return Subject(
        sink,
        lambda task: rows_in_sqlite(sink.path, task),
        away=lambda: locked_database(sink.path),
        poison=lambda: seven_is_enough(sink.path),
    )


def keys_in_sqlite(path: Path, task: str) -> dict[str, Any]:
    db = sqlite3.connect(path)
    try:
        return {key: json.loads(record) for key, record in db.execute("SELECT key, record FROM output") if task in key}
    finally:
        db.close()


def upserts(directory: Path, **options: Any) -> Subject:
    sink = SqliteSink(directory / "out.db", busy_ms=50, upsert=True, **options)
    return Subject(
        sink,
        lambda task: keys_in_sqlite(sink.path, task),
        seen=upserting.rows_seen,
        away=lambda: locked_database(sink.path),
        row=upserting.revision_of,
        poison=lambda: seven_is_enough(sink.path),
    )


def lines(directory: Path, **options: Any) -> Subject:
    sink = JsonLinesSink(directory / "out", busy_ms=50, **options)

    def half_a_journal(task: str) -> None:
        path = sink.path_of(task)
        journal = path.with_name(f".{path.stem}.journal")
        os.truncate(journal, journal.stat().st_size - 20)
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-5]))

    def half_a_line(task: str) -> None:
        path = sink.path_of(task)
        os.truncate(path, path.stat().st_size - 15)

    return Subject(
        sink,
        lambda task: rows_in_lines(sink.path_of(task)),
        away=lambda: locked_file(sink.directory / ".out-0.lock"),
        tears=(half_a_journal, half_a_line),
    )


def tally(directory: Path) -> Subject:
    sink = TallySink(directory / "tally.db", busy_ms=50)
    return Subject(sink, lambda task: rows_in_tally(sink.path, task), seen=len, away=lambda: locked_database(sink.path))


def sqlite_on_disk(directory: Path) -> Subject:
    return sqlite(directory, durability="os")


def lines_on_disk(directory: Path) -> Subject:
    return lines(directory, durability="os")


@pytest.mark.parametrize("make", [sqlite, lines, upserts, *map(campaign, (tally, sqlite_on_disk, lines_on_disk))])
@pytest.mark.parametrize(
    "check", in_bounds(conformance.CHECKS + withdrawal.CHECKS + returning.CHECKS), ids=lambda check: check.__name__
)
def test_the_sinks_that_ship_conform(
    check: Callable[[Subject], None], make: Callable[[Path], Subject], tmp_path: Path
) -> None:
    check(make(tmp_path))


@pytest.mark.parametrize("make", [sqlite, lines, tally])
def test_a_sink_knows_the_newest_run_that_has_opened_it(make: Callable[[Path], Subject], tmp_path: Path) -> None:
    subject = make(tmp_path)
    assert subject.sink.newest_run() is None
    subject.opened(run="run-1")[0].close()
    assert subject.sink.newest_run() == "run-1"
    subject.opened(run="run-3", task="out/1")[0].close()
    assert subject.sink.newest_run() == "run-3"
    with pytest.raises(Superseded, match="run-3"):
        subject.opened(run="run-2", task="out/2")
