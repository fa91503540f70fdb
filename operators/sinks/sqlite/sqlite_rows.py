"""The insertion of a bundle's rows into the table `output` of a SQLite file, and the search for refused rows.

The sink creates `output`, but a user may add a unique index or a trigger to it. The functions run inside the bundle's
transaction, which an error rolls back.
"""

from __future__ import annotations

import sqlite3
from itertools import repeat
from pathlib import Path

from causal.errors import CorruptData, RowRefused
from causal.ports import Bundle
from operators.sinks.contract.sink import lines_of
from operators.sinks.sqlite.sqlite_errors import code_of
from operators.sinks.sqlite.sqlite_hidden import make_way, table_of

AT_ONCE = 32
"""The number of rows per statement."""
_MANY = ", ".join(f"(?1, ?2 + {place}, ?{place + 3})" for place in range(AT_ONCE))
REFUSALS = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)
REFUSED_NAMED_MAX = 1000
"""The most refused rows of one bundle that are named together."""


def _into(table: str, rows: str) -> str:
    """Return the statement that inserts rows; it names its columns, because users may have added others."""
    return f"INSERT INTO {table}(task, position, record) VALUES{rows}"


def insert(db: sqlite3.Connection, path: Path, task: str, bundle: Bundle) -> None:
    """Insert all rows of the bundle except those that are known to be refused.

    Raises:
        RowRefused: the file refuses rows; the error names all of them, up to a limit.
        CorruptData: a row with one of these positions already exists.
    """
    note_refused(db, task, bundle)
    stop = bundle.first + bundle.count
    table = make_way(db, task, bundle.first, stop)
    try:
        _insert_all(db, table, task, bundle)
    except sqlite3.Error as problem:
        if code_of(problem) not in REFUSALS:
            raise
    else:
        return
    if not db.in_transaction:
        # A trigger may have rolled back the transaction. The new one is never committed.
        db.execute("BEGIN IMMEDIATE")
    refused: list[tuple[int, str]] = []
    table = table_of(db)
    db.execute(f"DELETE FROM {table} WHERE task = ? AND position >= ? AND position < ?", (task, bundle.first, stop))
    for position, line in zip(*lines_of(bundle)):
        try:
            db.execute(_into(table, "(?, ?, ?)"), (task, position, line))
        except sqlite3.Error as problem:
            if code_of(problem) not in REFUSALS:
                raise
            refused.append((position, " ".join(str(problem).split())))
            if not db.in_transaction or len(refused) == REFUSED_NAMED_MAX:
                break
    if refused:
        raise RowRefused(*refused[0], *refused[1:])
    raise CorruptData(f"{path}: table output holds rows of {task} that no bundle wrote; restore the file")


def _insert_all(db: sqlite3.Connection, table: str, task: str, bundle: Bundle) -> None:
    """Insert many rows per statement, because starting and finishing a statement is a large part of a row's cost."""
    positions, lines = lines_of(bundle)
    if not bundle.refused:
        texts = list(lines)
        done, many = len(texts) - len(texts) % AT_ONCE, _into(table, _MANY)
        for start in range(0, done, AT_ONCE):
            db.execute(many, (task, bundle.first + start, *texts[start : start + AT_ONCE]))
        positions, lines = range(bundle.first + done, bundle.first + bundle.count), texts[done:]
    db.executemany(_into(table, "(?, ?, ?)"), zip(repeat(task), positions, lines))


def note_refused(db: sqlite3.Connection, task: str, bundle: Bundle) -> None:
    """Record in the file which rows of the bundle are left out, and why."""
    if bundle.refused:
        rows = [(task, position, reason) for position, reason in bundle.refused]
        db.executemany("INSERT INTO causal_refused VALUES(?, ?, ?)", rows)


def refused_below(db: sqlite3.Connection, task: str, next_: int) -> int:
    """Return how many of a task's rows below the given position were left out."""
    asked = "SELECT count(*) FROM causal_refused WHERE task = ? AND position < ?"
    return int(db.execute(asked, (task, next_)).fetchone()[0])
