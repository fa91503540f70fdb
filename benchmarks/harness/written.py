"""Reads back what a job has written into SQLite and into files of lines, for the checks of its rows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Hashable, Iterable, Iterator
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


def records_from(database: Path, first: int) -> list[Any]:
    """Return the records of the only task of a `SqliteSink` from a position on."""
    with closing(sqlite3.connect(database)) as connection:
        texts = connection.execute("SELECT record FROM output WHERE position >= ? ORDER BY position", (first,))
        return [json.loads(text) for (text,) in texts]


def lines_in(directory: Path) -> Iterator[Any]:
    """Yield the records of all files of JSON lines in a directory, by task and position."""
    for path in sorted(directory.glob("*.jsonl")):
        yield from map(json.loads, path.read_text().splitlines())


def wrong(rows: Iterable[tuple[Hashable, int, Hashable]], elements: int) -> dict[str, int]:
    """Return faults of a running count by kind: elements lost and doubled, numbers out of turn.

    Args:
        rows: (key, its number, element), in the order of their positions.
        elements: how many there are in all.
    """
    seen: set[Hashable] = set()
    turns: dict[Hashable, int] = {}
    count = contradicted = 0
    for key, n, element in rows:
        contradicted += n != turns.get(key, 0) + 1
        turns[key] = n
        seen.add(element)
        count += 1
    return {"lost": elements - len(seen), "doubled": count - len(seen), "contradicted": contradicted}
