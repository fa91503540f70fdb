"""The table `output(key, record)` of a SQLite file, which has one row per key, and the entries that undo its changes.

Every function runs inside a transaction of the store, which an error rolls back. A user may add triggers, columns and
indexes to `output`; a revision that violates one is refused, and the row of its key stays as it was.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from causal.errors import CorruptData, RowRefused
from causal.ports import Bundle
from operators.sinks.contract.upserts import Undo, latest, restored, upserts_of
from operators.sinks.sqlite.sqlite_errors import code_of
from operators.sinks.sqlite.sqlite_rows import REFUSALS, REFUSED_NAMED_MAX, note_refused

OUTPUT = "CREATE TABLE IF NOT EXISTS output(key TEXT NOT NULL PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID"
UNDO = """CREATE TABLE IF NOT EXISTS causal_undo(
    task TEXT NOT NULL, position INTEGER NOT NULL, key TEXT NOT NULL, epoch INTEGER NOT NULL, record TEXT,
    PRIMARY KEY(task, position, key)) WITHOUT ROWID"""
_REMEMBER = "INSERT INTO causal_undo VALUES(?1, ?2, ?3, ?4, (SELECT record FROM output WHERE key = ?3))"
_UPSERT = "INSERT INTO output(key, record) VALUES(?, ?) ON CONFLICT(key) DO UPDATE SET record = excluded.record"
_DELETE = "DELETE FROM output WHERE key = ?"


def upsert(db: sqlite3.Connection, path: Path, task: str, bundle: Bundle) -> None:
    """Change the rows of the bundle's keys, except by revisions that are known to be refused.

    Raises:
        RowRefused: the file refuses revisions; the error names all of them, up to a limit.
    """
    note_refused(db, task, bundle)
    last = latest(bundle)
    db.executemany(_REMEMBER, [(task, bundle.first, key, bundle.epoch) for key in last])
    db.execute("SAVEPOINT changes")
    try:
        for key, record in last.items():
            _change(db, key, record)
    except sqlite3.Error as problem:
        if code_of(problem) not in REFUSALS:
            raise
        _change_one_by_one(db, path, task, bundle)
    else:
        db.execute("RELEASE changes")


def _change(db: sqlite3.Connection, key: str, record: str | None) -> None:
    if record is None:
        db.execute(_DELETE, (key,))
    else:
        db.execute(_UPSERT, (key, record))


def _change_one_by_one(db: sqlite3.Connection, path: Path, task: str, bundle: Bundle) -> None:
    """Apply every revision, because the last ones of each key may conflict where all of them in order do not."""
    whole = db.in_transaction
    # A trigger may have rolled back the transaction. The new one is never committed.
    db.execute("ROLLBACK TO changes" if whole else "BEGIN IMMEDIATE")
    refused: list[tuple[int, str]] = []
    for position, key, record in upserts_of(bundle):
        try:
            _change(db, key, record)
        except sqlite3.Error as problem:
            if code_of(problem) not in REFUSALS:
                raise
            refused.append((position, " ".join(str(problem).split())))
            if not db.in_transaction or len(refused) == REFUSED_NAMED_MAX:
                break
    if refused:
        raise RowRefused(*refused[0], *refused[1:])
    if not whole:
        raise CorruptData(
            f"{path}: a trigger of table output rolled back rows of {task} that it accepts alone; drop it"
        )


def oldest_undo(db: sqlite3.Connection, task: str) -> int | None:
    """Return the position of a task's oldest undo entry, or None if it has none."""
    oldest: int | None
    oldest = db.execute("SELECT min(position) FROM causal_undo WHERE task = ?", (task,)).fetchone()[0]
    return oldest


def forget(db: sqlite3.Connection, task: str, floor: int) -> None:
    """Delete a task's undo entries below position `floor`."""
    db.execute("DELETE FROM causal_undo WHERE task = ? AND position < ?", (task, floor))


def undo(db: sqlite3.Connection, task: str, next_: int) -> None:
    """Undo what a task's bundles from position `next_` on have changed."""
    asked = "SELECT min(epoch) FROM causal_undo WHERE task = ? AND position >= ?"
    (epoch,) = db.execute(asked, (task, next_)).fetchone()
    if epoch is None:
        return
    asked = "SELECT task, epoch, position, key, record FROM causal_undo WHERE epoch >= ?"
    entries = db.execute(f"{asked} ORDER BY epoch DESC, position DESC", (epoch,))
    back = restored(map(Undo._make, entries), task, next_)
    changed = [(record, *entry) for entry, record in back.others.items()]
    db.executemany("UPDATE causal_undo SET record = ? WHERE task = ? AND position = ? AND key = ?", changed)
    db.executemany(_DELETE, [(key,) for key in back.rows])
    rows = [(key, record) for key, record in back.rows.items() if record is not None]
    db.executemany(_UPSERT, rows)
    db.execute("DELETE FROM causal_undo WHERE task = ? AND position >= ?", (task, next_))
