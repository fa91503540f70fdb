"""Rows of `output` that are withdrawn but not deleted yet: no reader sees them, and they are deleted in small steps.

The time that a deletion takes grows with the number of rows. A withdrawal of many rows therefore only renames the table
and puts a view in its place, in the transaction that moves the account back. The view shows the rows below each
account's position, so a reader of `output` sees the withdrawal at the moment when the account has it:

    output          a view: the rows of each task below `causal_task.next`, in the order of the table
    causal_output   the table, with its indexes
    causal_hidden   per task, the position at which its hidden rows end; they begin at `causal_task.next`

A bundle deletes the hidden rows whose positions it takes. Each bundle and each checkpoint, of any task, also deletes a
few others, from the end. The last such step gives the table its name back. Every step is part of a transaction of a
store, so a crash at any moment shows nothing that is hidden, and the next process continues.

A view has no triggers, unique indexes or columns of users; a table with any of these has its rows deleted immediately.
"""

from __future__ import annotations

import sqlite3

TABLE = "causal_output"
"""The name of the table while a view has its name."""
HIDDEN = "causal_hidden"
VERSION = 6
"""The version of a file with hidden rows, which earlier versions of this package refuse to write to."""
HIDDEN_MIN = 50_000
"""Fewer rows than these are deleted immediately, in about 25 ms."""
PER_BUNDLE, PER_CHECKPOINT = 1_000, 20_000
"""The most hidden rows that a bundle and a checkpoint delete."""

_RENAMED_ONLY = "PRAGMA legacy_alter_table = ON"
"""A setting that lets views and triggers of users continue to refer to `output`."""
_HIDE = (
    _RENAMED_ONLY,
    f"ALTER TABLE output RENAME TO {TABLE}",
    f"""CREATE VIEW output AS SELECT kept.task, kept.position, kept.record
        FROM causal_task AS owner CROSS JOIN {TABLE} AS kept
        ON kept.task = owner.task AND kept.position < owner.next""",
    f"CREATE TABLE {HIDDEN}(task TEXT PRIMARY KEY, stop INTEGER NOT NULL) WITHOUT ROWID",
    f"PRAGMA user_version = {VERSION}",
)
_SHOW = (
    _RENAMED_ONLY,
    "DROP VIEW output",
    f"DROP TABLE {HIDDEN}",
    f"ALTER TABLE {TABLE} RENAME TO output",
    f"PRAGMA user_version = {VERSION - 1}",
)
_NEXT = f"SELECT task, next, stop FROM {HIDDEN} JOIN causal_task USING(task) LIMIT 1"
_COLUMNS = ["task", "position", "record"]


def hides(db: sqlite3.Connection) -> bool:
    """Return whether the file has a view in place of its table; this is valid until the transaction ends."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version == VERSION


def table_of(db: sqlite3.Connection) -> str:
    """Return the present name of the table."""
    return TABLE if hides(db) else "output"


def withdraw(db: sqlite3.Connection, task: str, next_: int, stop: int) -> None:
    """Remove a task's rows from `next_` up to `stop` for every reader; the stored account is at `next_` already."""
    hidden = hides(db)
    if not hidden and (stop - next_ < HIDDEN_MIN or not _is_unchanged(db)):
        db.execute("DELETE FROM output WHERE task = ? AND position >= ?", (task, next_))
        return
    for statement in () if hidden else _HIDE:
        db.execute(statement)
    largest = f"INSERT INTO {HIDDEN} VALUES(?, ?) ON CONFLICT(task) DO UPDATE SET stop = max(stop, excluded.stop)"
    db.execute(largest, (task, stop))


def _is_unchanged(db: sqlite3.Connection) -> bool:
    """Return whether users have added nothing to the table but indexes that are not unique."""
    columns = [name for _, name, *_ in db.execute("PRAGMA table_info(output)")]
    unique = [
        name for _, name, unique, origin, _ in db.execute("PRAGMA index_list(output)") if unique and origin != "pk"
    ]
    triggers = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'output'").fetchone()
    return columns == _COLUMNS and not unique and triggers is None


def make_way(db: sqlite3.Connection, task: str, first: int, stop: int) -> str:
    """Delete the hidden rows at the positions of a bundle, and a few more; return the name of the table."""
    if not hides(db):
        return "output"
    db.execute(f"DELETE FROM {TABLE} WHERE task = ? AND position >= ? AND position < ?", (task, first, stop))
    delete_some(db, PER_BUNDLE)
    return table_of(db)


def delete_some(db: sqlite3.Connection, rows_max: int) -> None:
    """Delete up to `rows_max` hidden rows, from the end; after the last one, the table has its name again."""
    if not hides(db):
        return
    at = db.execute(_NEXT).fetchone()
    if at is not None:
        task, next_, stop = at
        first = max(next_, stop - rows_max)
        db.execute(f"DELETE FROM {TABLE} WHERE task = ? AND position >= ? AND position < ?", (task, first, stop))
        if first > next_:
            db.execute(f"UPDATE {HIDDEN} SET stop = ? WHERE task = ?", (first, task))
            return
        db.execute(f"DELETE FROM {HIDDEN} WHERE task = ?", (task,))
        if db.execute(_NEXT).fetchone() is not None:
            return
    for statement in _SHOW:
        db.execute(statement)
