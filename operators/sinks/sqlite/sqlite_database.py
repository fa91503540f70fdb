"""The rows and the account of one sink task in a SQLite file: see `sqlite_sink` for what it promises.

Every step is one transaction.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from causal.errors import CausalError, PipelineError, Unavailable
from causal.logs.log import LogDelta
from causal.ports import Bundle, WithdrawPoint
from causal.records.values import decode, encode
from causal.shell.modes import mode_of_files, opened
from operators.sinks.contract.account import Account
from operators.sinks.contract.account_parts import LOG, log_parts, take_part
from operators.sinks.contract.sink import check_writable
from operators.sinks.databases.database import Before, SqlDatabase
from operators.sinks.sqlite.sqlite_errors import code_of, translated
from operators.sinks.sqlite.sqlite_log import PAGES_MAX, LogCopier
from operators.sinks.sqlite.sqlite_rows import insert, refused_below
from operators.sinks.storage.lock import outside

if TYPE_CHECKING:
    from operators.sinks.sqlite.sqlite_sink import SqliteSink

VERSION = 4
"""The version of the tables; a file of a later one is refused, of an earlier one gets what it lacks."""
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
_OWNED = "WHERE task = ? AND run = ? AND incarnation = ?"
_ADVANCE = f"UPDATE causal_task SET next = ?, digest = ?, last = ?, ended = ? {_OWNED} AND next = ? AND last = ?"
_TRUNCATE = f"UPDATE causal_task SET kept_from = ? {_OWNED}"
_SYNCHRONOUS = {"process": "NORMAL", "os": "FULL"}
"""The setting of `synchronous`, by durability."""


class SqliteDatabase(SqlDatabase[sqlite3.Connection]):
    """The rows of one task in the table `output` of a file, and its account beside them."""

    failure = sqlite3.Error
    lost = "it was restored from a copy"
    parameter = ":{}"
    of_task = "task = :task"
    beside = ("causal_log", "causal_epoch", "causal_mark", "causal_withdrawn", "causal_refused")
    table = "output"
    """The table that users read."""
    schema = """CREATE TABLE IF NOT EXISTS output(task TEXT NOT NULL, position INTEGER NOT NULL, record TEXT NOT NULL,
        PRIMARY KEY(task, position)) WITHOUT ROWID"""
    """Makes it."""

    def __init__(self, sink: SqliteSink, task: str) -> None:
        super().__init__(sink, task, str(sink.path))
        self.path = sink.path
        self._busy_s = sink.busy_ms / 1000
        self._file: tuple[int, int] | None = None
        self._row_bytes = 0
        self._copier = LogCopier(self.path)

    @property
    def output(self) -> str:
        return self.place

    def execute(self, statement: str, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
        return self.db.execute(statement, parameters)

    # -- the connection ------------------------------------------------------------------------------

    def connect(self) -> None:
        """See `Database.connect`; several tasks may be changing a new file to WAL mode at the same time."""
        if self.connection is not None:
            return
        deadline_s = time.monotonic() + self._busy_s
        while self.connection is None:
            try:
                self.connection, self._file = self._connected(), self._identity()
            except sqlite3.Error as problem:
                if code_of(problem) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                    raise
                time.sleep(0.01)

    def _connected(self) -> sqlite3.Connection:
        with outside(self.path):  # its log and its index get the mode of the file
            os.close(opened(self.path, os.O_RDWR, mode_of_files()))
        db = sqlite3.connect(self.path, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise PipelineError(f"{self.path}: this file system cannot hold a SQLite log; give another path")
            db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self.durability]}")
            db.execute(f"PRAGMA wal_autocheckpoint = {PAGES_MAX}")
            return db
        except BaseException:
            db.close()
            raise

    def close(self) -> None:
        self._copier.close()
        self._copier = LogCopier(self.path)
        self._file = None
        super().close()

    def translated(self, problem: Exception) -> CausalError:
        return translated(problem, self.path)

    @contextmanager
    def step(self) -> Iterator[None]:
        """See `Database.step`; a transaction, which an error rolls back, on a connection that stays."""
        self._row_bytes = 0
        self._check_file()
        try:
            self.connect()
            db = self.db
            self._copier.before(db)
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("COMMIT")
        except BaseException as problem:
            self._roll_back()
            if isinstance(problem, sqlite3.Error):
                raise translated(problem, self.path) from problem
            raise
        if self._row_bytes:
            self._copier.wrote(self._row_bytes)

    def _roll_back(self) -> None:
        db = self.connection
        if db is None or not db.in_transaction:
            return
        try:
            db.execute("ROLLBACK")
        except sqlite3.Error as problem:
            # A connection that cannot roll back is of no more use; closing it rolls back.
            self.connection = None
            db.close()
            raise translated(problem, self.path) from problem

    def _identity(self) -> tuple[int, int] | None:
        try:
            at = os.stat(self.path)
        except OSError:
            return None
        return at.st_dev, at.st_ino

    def _check_file(self) -> None:
        """Raise `Unavailable` where the file was replaced: SQLite would continue to write into a deleted one."""
        if self._file is not None and self._identity() != self._file:
            raise Unavailable(f"{self.path} was moved, replaced or deleted while the job runs; put it back")

    def check(self) -> None:
        """See `Database.check`; looks at the path and touches nothing."""
        check_writable(self.path.parent, self.sink_name)
        if self.path.exists() and not (self.path.is_file() and os.access(self.path, os.W_OK)):
            raise PipelineError(f"{self.sink_name}: {self.path} is not a file that can be written; give another path")

    # -- the tables ----------------------------------------------------------------------------------

    def make_tables(self) -> None:
        """See `SqlDatabase.make_tables`; refuses a file of another program."""
        db = self.db
        version = db.execute("PRAGMA user_version").fetchone()[0]
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
        if "causal_task" in there:
            if version > VERSION:
                raise PipelineError(f"{self.path} was written by a later version of this package; give another path")
            if self.table not in there:
                raise PipelineError(f"{self.path} was written by another kind of sink; give another path")
            if version == VERSION:
                return
        elif there.intersection((self.table, *self.beside)):
            raise PipelineError(f"{self.path} has a table {self.table} that no sink made; give another path")
        for statement in (*_SCHEMA, self.schema, f"PRAGMA user_version = {VERSION}"):
            db.execute(statement)

    # -- rows ----------------------------------------------------------------------------------------

    def insert_rows(self, bundle: Bundle) -> None:
        """Insert the rows of a bundle, and note those that are left out.

        Raises:
            RowRefused: the file refuses rows.
        """
        insert(self.db, self.path, self.task, bundle)

    def remove_rows(self, task: str, first: int) -> None:
        self.db.execute("DELETE FROM output WHERE task = ? AND position >= ?", (task, first))

    # -- the account ---------------------------------------------------------------------------------

    def load_rest(self, account: Account) -> None:
        db, task = self.db, (self.task,)
        withdrawn = "SELECT coalesce(max(rows), 0) FROM causal_withdrawn WHERE task = ?"
        account.withdrawn = db.execute(withdrawn, task).fetchone()[0]
        account.refused = refused_below(db, self.task, account.next)
        account.epochs.update(db.execute("SELECT epoch, first FROM causal_epoch WHERE task = ?", task))
        with self.decoding(f"tables causal_log and causal_mark of task {self.task}"):
            for epoch, sequence, deltas in db.execute(
                "SELECT epoch, sequence, deltas FROM causal_log WHERE task = ? ORDER BY epoch, sequence", task
            ):
                self.sequence = max(self.sequence, sequence + 1)
                take_part(account, LOG, epoch, deltas)
            self._load_marks(account)

    def _load_marks(self, account: Account) -> None:
        for sequence, next_, digest, epoch, rollback, depends in self.db.execute(
            "SELECT sequence, next, digest, epoch, rollback, depends FROM causal_mark WHERE task = ? ORDER BY sequence",
            (self.task,),
        ):
            self.sequence = max(self.sequence, sequence + 1)
            extents = tuple((owner, at, extent) for owner, at, extent in decode(depends))
            account.marks.append(WithdrawPoint(next_, int.from_bytes(digest, "big"), epoch, rollback, extents))
            account.mark_bytes.append(0)
            account.mark_refused.append(refused_below(self.db, self.task, next_) if account.refused else 0)

    def append(self, before: Before, account: Account, fresh: Sequence[LogDelta], bundle: Bundle) -> bool:
        if not self._advance(before, account):
            return False
        if bundle.count:
            self.insert_rows(bundle)
        if account.epochs.get(bundle.epoch) == bundle.first:
            row = (self.task, bundle.epoch, bundle.first)
            self.db.execute("INSERT OR IGNORE INTO causal_epoch VALUES(?, ?, ?)", row)
        self._keep(fresh, account.marks[before.marks :])
        self._row_bytes = len(bundle.rows)
        return True

    def truncate(self, account: Account) -> bool:
        db, below = self.db, (self.task, account.kept_from)
        if db.execute(_TRUNCATE, (account.kept_from, *_owner(account))).rowcount != 1:
            return False
        db.execute("DELETE FROM causal_log WHERE task = ? AND epoch < ?", below)
        db.execute("DELETE FROM causal_epoch WHERE task = ? AND epoch < ?", below)
        db.execute("DELETE FROM causal_mark WHERE task = ?", (self.task,))
        self._keep((), account.marks)
        return True

    def withdraw(self, before: Before, account: Account) -> bool:
        db, task = self.db, (self.task,)
        if not self._advance(before, account):
            return False
        db.execute("INSERT OR REPLACE INTO causal_withdrawn VALUES(?, ?)", (self.task, account.withdrawn))
        self.remove_rows(self.task, account.next)
        db.execute("DELETE FROM causal_refused WHERE task = ? AND position >= ?", (self.task, account.next))
        for table in ("causal_log", "causal_epoch", "causal_mark"):
            db.execute(f"DELETE FROM {table} WHERE task = ?", task)
        epochs = [(self.task, epoch, first) for epoch, first in account.epochs.items()]
        db.executemany("INSERT INTO causal_epoch VALUES(?, ?, ?)", epochs)
        self._keep(account.store_state().logs, account.marks)
        return True

    def _advance(self, before: Before, account: Account) -> bool:
        """Store the numbers of the account; returns false where the stored one is not that which it follows."""
        numbers = (account.next, account.digest.to_bytes(8, "big"), account.last, account.ended)
        row = (*numbers, *_owner(account), before.next, before.last)
        return self.db.execute(_ADVANCE, row).rowcount == 1

    def _keep(self, logs: Iterable[LogDelta], marks: Sequence[WithdrawPoint]) -> None:
        """Add determinants and marks behind those that are stored."""
        db = self.db
        for _, epoch, deltas in log_parts(logs):
            db.execute("INSERT INTO causal_log VALUES(?, ?, ?, ?)", (self.task, epoch, self.sequence, deltas))
            self.sequence += 1
        for mark in marks:
            point = (mark.next, mark.digest.to_bytes(8, "big"), mark.epoch, mark.rollback, encode(mark.depends))
            db.execute("INSERT INTO causal_mark VALUES(?, ?, ?, ?, ?, ?, ?)", (self.task, self.sequence, *point))
            self.sequence += 1


def _owner(account: Account) -> tuple[str, str, int]:
    return account.task, account.run, account.incarnation
