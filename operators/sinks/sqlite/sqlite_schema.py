"""The tables of a SQLite file that a sink writes; `operators.sinks.sqlite.sqlite_sink` says what they are for."""

from __future__ import annotations

VERSION = 4
"""The version of the tables; a file of a later one is refused, of an earlier one gets what it lacks."""
OUTPUT = """CREATE TABLE IF NOT EXISTS output(
    task TEXT NOT NULL, position INTEGER NOT NULL, record TEXT NOT NULL, PRIMARY KEY(task, position)) WITHOUT ROWID"""
SCHEMA = (
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
OURS = ("output", "causal_task", "causal_log", "causal_epoch", "causal_mark", "causal_withdrawn", "causal_refused")
