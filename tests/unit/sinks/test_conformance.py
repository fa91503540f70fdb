"""Every sink that ships keeps every promise of the kit."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operators.sinks import JsonLinesSink, SqliteSink, TallySink, conformance, conformance_withdrawal
from operators.sinks.conformance import Subject


def rows_in_sqlite(path: Path, task: str) -> list[Any]:
    db = sqlite3.connect(path)
    try:
        found = db.execute("SELECT position, record FROM output WHERE task = ? ORDER BY position", (task,)).fetchall()
    finally:
        db.close()
    assert [position for position, _ in found] == list(range(len(found)))
    return [json.loads(record) for _, record in found]


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


def sqlite(directory: Path, **options: Any) -> Subject:
    sink = SqliteSink(directory / "out.db", busy_ms=200, **options)
    return Subject(sink, lambda task: rows_in_sqlite(sink.path, task))


def lines(directory: Path, **options: Any) -> Subject:
    sink = JsonLinesSink(directory / "out", busy_ms=200, **options)
    return Subject(sink, lambda task: rows_in_lines(sink.path_of(task)))


def tally(directory: Path) -> Subject:
    sink = TallySink(directory / "tally.db", busy_ms=200)
    return Subject(sink, lambda task: rows_in_tally(sink.path, task), seen=len)


def sqlite_on_disk(directory: Path) -> Subject:
    return sqlite(directory, durability="os")


def lines_on_disk(directory: Path) -> Subject:
    return lines(directory, durability="os")


@pytest.mark.parametrize("make", [sqlite, sqlite_on_disk, lines, lines_on_disk, tally])
@pytest.mark.parametrize("check", conformance.CHECKS + conformance_withdrawal.CHECKS, ids=lambda check: check.__name__)
def test_the_sinks_that_ship_conform(
    check: Callable[[Subject], None], make: Callable[[Path], Subject], tmp_path: Path
) -> None:
    check(make(tmp_path))
