"""Reads back what a job has written into SQLite and into files of lines, for the checks of its rows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any


def rows_in(database: Path, question: str) -> Iterator[tuple[Any, ...]]:
    """Yield the answer to a question in SQL, row by row."""
    with closing(sqlite3.connect(database)) as connection:
        yield from connection.execute(question)


def records_in(database: Path) -> Iterator[Any]:
    """Yield the records of all tasks of a `SqliteSink`, by task and position."""
    for (text,) in rows_in(database, "SELECT record FROM output ORDER BY task, position"):
        yield json.loads(text)


def lines_in(directory: Path) -> Iterator[Any]:
    """Yield the records of all files of JSON lines in a directory, by task and position."""
    for path in sorted(directory.glob("*.jsonl")):
        yield from map(json.loads, path.read_text().splitlines())
