"""The tables of a SQLite file that sinks write to, and the rule that the file belongs to the newest run.

    output(task, position, record)   what users read
    causal_task                      one row per sink task: run, incarnation, next position, digest
    causal_log                       determinants of epochs that no complete checkpoint covers yet
    causal_epoch                     where in `output` each of these epochs begins
    causal_mark                      below full sharing depth: positions for withdrawals, and their dependencies
    causal_refused                   rows that are not in `output` because the file refuses them: position and reason

After a withdrawal of many rows, `output` is a view for a while (`sqlite_hidden`).

With `upsert=True`, `output(key, record)` has one row per key, and `causal_undo` what rows were before they changed
(`sqlite_upserts`).

`output` is ordered by its primary key instead of a rowid. A bundle of 1,000 short rows then takes 0.5 ms, a sixth less
than with a separate index. Without any index, nothing would refuse a duplicate position.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Protocol

from causal.errors import PipelineError
from operators.sinks.contract.account import check_newest, foreign_rows
from operators.sinks.sqlite import sqlite_hidden, sqlite_upserts

_VERSION = 5
"""The version of the tables; a file of a later one is refused, of an earlier one gets what it lacks."""
_OUTPUT = """CREATE TABLE IF NOT EXISTS output(
    task TEXT NOT NULL, position INTEGER NOT NULL, record TEXT NOT NULL, PRIMARY KEY(task, position)) WITHOUT ROWID"""
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS causal_task(
        task TEXT PRIMARY KEY, run TEXT NOT NULL, incarnation INTEGER NOT NULL, next INTEGER NOT NULL,
        digest BLOB NOT NULL, last BLOB NOT NULL, kept_from INTEGER NOT NULL, ended INTEGER NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS causal_log(
        task TEXT NOT NULL, epoch INTEGER NOT NULL, sequence INTEGER NOT NULL, deltas BLOB NOT NULL,
        PRIMARY KEY(task, epoch, sequence)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS causal_epoch(
        task TEXT NOT NULL, epoch INTEGER NOT NULL, first INTEGER NOT NULL, PRIMARY KEY(task, epoch)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS causal_mark(
        task TEXT NOT NULL, sequence INTEGER NOT NULL, next INTEGER NOT NULL, digest BLOB NOT NULL,
        epoch INTEGER NOT NULL, rollback INTEGER NOT NULL, depends BLOB NOT NULL,
        PRIMARY KEY(task, sequence)) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS causal_withdrawn(task TEXT PRIMARY KEY, rows INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE IF NOT EXISTS causal_refused(
        task TEXT NOT NULL, position INTEGER NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY(task, position)) WITHOUT ROWID""",
)
_OURS = ("output", "causal_task", "causal_log", "causal_epoch", "causal_mark", "causal_withdrawn", "causal_refused")


class Target(Protocol):
    """The file and options of a sink.

    Attributes:
        keeps_rows: whether the file has a table `output`; otherwise, it contains only the account.
        upsert: whether `output` has one row per key.
        undo_rows: how many of its latest revisions a task can undo, if `output` has one row per key.
    """

    path: Path
    existing: str | None
    durability: str | None
    busy_ms: int
    keeps_rows: bool
    upsert: bool
    undo_rows: int


def make_tables(db: sqlite3.Connection, target: Target) -> None:
    """Create the tables; raise `PipelineError` if another program or another kind of sink wrote the file."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    if version > sqlite_hidden.VERSION and "causal_task" in there:
        raise PipelineError(f"{target.path} was written by a later version of this package; use another path")
    if "causal_task" in there:
        if target.keeps_rows != ("output" in there):
            raise PipelineError(f"{target.path} was written by another kind of sink; use another path")
        if target.upsert != ("causal_undo" in there):
            has = "one row per revision" if target.upsert else "one row per key"
            raise PipelineError(f"{target.path} has a table output with {has} (upsert=); use another path")
        if version < _VERSION:
            for statement in _SCHEMA:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {_VERSION}")
        return
    if there.intersection((*_OURS, sqlite_hidden.TABLE, sqlite_hidden.HIDDEN, "causal_undo", "tally")):
        raise PipelineError(f"{target.path} has a table output that was not created by a sink; use another path")
    for statement in _SCHEMA:
        db.execute(statement)
    if target.upsert:
        db.execute(sqlite_upserts.OUTPUT)
        db.execute(sqlite_upserts.UNDO)
    elif target.keeps_rows:
        db.execute(_OUTPUT)
    else:
        db.execute("CREATE VIEW tally AS SELECT task, next AS rows, ended FROM causal_task")
    db.execute(f"PRAGMA user_version = {_VERSION}")


def make_room(db: sqlite3.Connection, target: Target, run: str) -> None:
    """Claim the file for the newest run; refuse rows of an earlier run, or remove them with "replace"."""
    check_is_newest(db, target, run)
    rows = db.execute("SELECT total(next) FROM causal_task WHERE run != ?", (run,)).fetchone()[0]
    if rows and target.existing == "refuse":
        raise foreign_rows(target.path, type(target).__name__)
    foreign = "(SELECT task FROM causal_task WHERE run != ?)"
    if target.upsert and db.execute(f"SELECT 1 WHERE EXISTS {foreign}", (run,)).fetchone():
        db.execute("DELETE FROM output")  # the first task of a run to open the file finds it without rows of its own
        db.execute("DELETE FROM causal_undo")
    tables = [table for table in _OURS if table not in ("output", "causal_task")]
    if target.keeps_rows and not target.upsert:
        tables.append(sqlite_hidden.table_of(db))
    for table in tables:
        db.execute(f"DELETE FROM {table} WHERE task IN {foreign}", (run,))
    if db.execute("DELETE FROM causal_task WHERE run != ?", (run,)).rowcount:
        sqlite_hidden.delete_some(db, 0)


def check_one_table(db: sqlite3.Connection, target: Target, task: str) -> None:
    """Raise `PipelineError` if another sink keeps the rows of its table in this file, where keys would collide."""
    sink = task.rpartition("/")[0]
    for (other,) in db.execute("SELECT task FROM causal_task"):
        if target.upsert and other.rpartition("/")[0] != sink:
            raise PipelineError(
                f"{target.path} already has the table of sink {other.rpartition('/')[0]!r}; use another path for sink "
                f"{sink!r}"
            )


def check_is_newest(db: sqlite3.Connection, target: Target, run: str) -> None:
    """Raise `Superseded` if a newer run has opened the file."""
    check_newest(target.path, run, db.execute("SELECT max(run) FROM causal_task").fetchone()[0])
