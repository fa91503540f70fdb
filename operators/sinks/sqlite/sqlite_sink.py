"""A sink that writes rows to a SQLite file, each exactly once, readable by any SQLite client at any moment.

One transaction holds the rows of a bundle, the position, the digest, the determinants and the check of the
incarnation, so a reader sees all of a bundle or nothing, and a zombie changes nothing, whenever it wakes up.
Several sink tasks share one file; each has its own positions.

    output(task, position, record)   what users read
    causal_task                      one row per sink task: run, incarnation, next position, digest
    causal_log                       determinants of epochs that no complete checkpoint covers yet
    causal_epoch                     where in `output` each of these epochs begins
    causal_mark                      below full sharing depth: where rows can be taken back to, and what they depend on
    causal_refused                   rows that are not in `output` because the file refuses them: position and reason

A user may add constraints of their own to `output` (a unique index, a trigger that raises): a row that breaks one is
refused, and what becomes of it is the job's setting `on_error`.

`output` is ordered by its primary key instead of a rowid: a bundle of 1,000 short rows takes 0.5 ms, a sixth less
than with a separate index; without any index nothing would refuse a doubled position.

Durability.  A commit survives the death of any process, this one's included, with either setting.  "process" is
SQLite's synchronous=NORMAL in WAL mode: when the machine loses power the file stays sound but may lack the last
bundles.  "os" is synchronous=FULL: each bundle is on the disk before it is acknowledged.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from causal.errors import CausalError, CorruptData, Fenced, PipelineError, Unavailable, fenced, invariant
from causal.logs.log import LogDelta
from causal.ports import Bundle, SinkStore, StoreState, WithdrawPoint
from causal.records.values import decode, encode, encode_loosely
from causal.storage.lock import absent, moved, outside
from causal.storage.modes import mode_of_files, opened
from operators.sinks.contract.account import Account, check_newest, foreign_rows
from operators.sinks.contract.options import (
    EXISTING,
    WAIT_MS_MAX,
    absolute,
    check_choice,
    check_durability,
    check_range,
)
from operators.sinks.contract.sink import Sink, check_writable
from operators.sinks.sqlite.sqlite_errors import code_of, translated
from operators.sinks.sqlite.sqlite_log import PAGES_MAX, LogCopier
from operators.sinks.sqlite.sqlite_rows import insert, note_refused, refused_below

_VERSION = 4
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


_SYNCHRONOUS = {"process": "NORMAL", "os": "FULL"}
"""The setting of `synchronous`, by durability."""

_MARK = "INSERT INTO causal_mark VALUES(?, ?, ?, ?, ?, ?, ?)"
_ADVANCE = """UPDATE causal_task SET next = ?, digest = ?, last = ?, ended = ?
    WHERE task = ? AND run = ? AND incarnation = ?"""


class SqliteSink(Sink):
    """A sink whose rows are in the table `output(task TEXT, position INTEGER, record TEXT)` of a SQLite file.

    Needs: nothing.
    Readers: table `output(task, position, record)` of a file.
    Step: one transaction.
    Fence: its row is updated only for its incarnation.
    Server: –.
    Power: `durability="os"`.
    Limits: one machine, and no network file system.

    Args:
        path: the file; it is made when it is not there, its directory is not.  A relative path counts from where the
            sink is made.  Not on a network file system: SQLite's locks do not hold there.
        existing: what to do with rows of an earlier run: "refuse" to start, or "replace" them.
        durability: "process" or "os" (see the module); none: the job's.
        busy_ms: how long to wait for another writer of the file before the write counts as `Unavailable`.
    """

    keeps_rows = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        existing: str = "refuse",
        durability: str | None = None,
        busy_ms: int = 2000,
    ) -> None:
        name = type(self).__name__
        check_choice(name, "existing", existing, EXISTING)
        check_durability(name, durability)
        check_range(name, "busy_ms", busy_ms, 1, WAIT_MS_MAX)
        self.path = absolute(name, "path", path)
        self.place = str(self.path)
        self.existing = existing
        self.durability = durability
        self.busy_ms = busy_ms

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """The store of one sink task; the file is not touched before its `open`."""
        return SqliteStore(self, task)

    def check(self) -> None:
        """Raise `PipelineError` where the file could not be made or written."""
        check_writable(self.path.parent, type(self).__name__)
        if self.path.exists() and not (self.path.is_file() and os.access(self.path, os.W_OK)):
            raise PipelineError(
                f"{type(self).__name__}: {self.path} is not a file that can be written; give another path"
            )

    def newest_run(self) -> str | None:
        """The newest run that has opened the file."""
        if not self.path.is_file():
            return None
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", timeout=self.busy_ms / 1000, uri=True)) as db:
                if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'causal_task'").fetchone():
                    return None
                newest: str | None = db.execute("SELECT max(run) FROM causal_task").fetchone()[0]
                return newest
        except sqlite3.Error as problem:
            raise translated(problem, self.path) from problem


class SqliteStore:
    """The outside world of one sink task, in a SQLite file.  One thread at a time."""

    def __init__(self, sink: SqliteSink, task: str) -> None:
        self._sink = sink
        self._task = task
        self._run = ""
        self._incarnation = -1
        self._db: sqlite3.Connection | None = None
        self._file = (0, 0)
        self._expected = False
        self._account: Account | None = None
        self._sequence = 0
        self._copier = LogCopier(sink.path)

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`; raises `PipelineError` also for a file that is not a store of ours."""
        invariant(task == self._task, "a store is opened by the task it was made for", made_for=self._task, task=task)
        self.close()
        self._run, self._incarnation = run, incarnation
        if self._expected and not self._sink.path.exists():
            raise absent(self._sink.path)
        self._db = self._connect()
        try:
            return self._claim().store_state()
        except BaseException:
            self.close()
            raise

    def _claim(self) -> Account:
        """Fence every lower incarnation of this task, in one transaction with the look at what is held."""
        task, run, incarnation = self._task, self._run, self._incarnation
        with self._atomic() as db:
            self._prepare(db)
            self._make_room(db)
            account = self._load(db)
            if account is None:
                account = Account(task, run, incarnation)
                db.execute(
                    "INSERT INTO causal_task VALUES(?, ?, ?, 0, ?, ?, 0, 0)", (task, run, incarnation, bytes(8), b"")
                )
            elif account.incarnation > incarnation:
                raise fenced(task, incarnation)
            account.incarnation = incarnation
            db.execute("UPDATE causal_task SET incarnation = ? WHERE task = ?", (incarnation, task))
            self._account = account
        at = os.stat(self._sink.path)
        self._file = (at.st_dev, at.st_ino)
        return account

    def expect(self, counted: bool) -> None:
        """See `causal.ports.LastingStore.expect`."""
        self._expected = True

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`."""
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        self._check_file()
        with self._atomic() as db:
            account = self._current(db)
            marks = len(account.marks)
            fresh = account.take(bundle)
            digest = account.digest.to_bytes(8, "big")
            claim = (account.next, digest, account.last, account.ended, self._task, self._run, self._incarnation)
            if db.execute(_ADVANCE, claim).rowcount != 1:
                raise self._not_owner(db)
            if fresh is None:
                return
            if self._sink.keeps_rows and bundle.count:
                insert(db, self._sink.path, self._task, bundle)
            elif bundle.refused:
                note_refused(db, self._task, bundle)
            if account.epochs.get(bundle.epoch) == bundle.first:
                db.execute(
                    "INSERT OR IGNORE INTO causal_epoch VALUES(?, ?, ?)", (self._task, bundle.epoch, bundle.first)
                )
            self._store_deltas(db, fresh)
            self._store_marks(db, account, marks)
        self._copier.wrote(len(bundle.rows))

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`."""
        self._check_file()
        with self._atomic() as db:
            self._account = None
            return self._current(db).store_state()

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`."""
        if self._account is not None and epoch <= self._account.kept_from:
            return
        self._check_file()
        with self._atomic() as db:
            account = self._current(db)
            if self._stored_owner(db) != (self._run, self._incarnation):
                raise self._not_owner(db)
            marked = bool(account.marks)
            if account.truncate(epoch):
                db.execute("UPDATE causal_task SET kept_from = ? WHERE task = ?", (epoch, self._task))
                db.execute("DELETE FROM causal_log WHERE task = ? AND epoch < ?", (self._task, epoch))
                db.execute("DELETE FROM causal_epoch WHERE task = ? AND epoch < ?", (self._task, epoch))
                if marked:
                    db.execute("DELETE FROM causal_mark WHERE task = ?", (self._task,))
                    self._store_marks(db, account, 0)

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """See `causal.ports.SinkStore.withdraw`."""
        self._check_file()
        with self._atomic() as db:
            account = self._current(db)
            account.withdraw(mark)
            claim = (mark.next, mark.digest.to_bytes(8, "big"), b"", 0, self._task, self._run, self._incarnation)
            if db.execute(_ADVANCE, claim).rowcount != 1:
                raise self._not_owner(db)
            db.execute("INSERT OR REPLACE INTO causal_withdrawn VALUES(?, ?)", (self._task, account.withdrawn))
            for table in ("output", "causal_refused") if self._sink.keeps_rows else ("causal_refused",):
                db.execute(f"DELETE FROM {table} WHERE task = ? AND position >= ?", (self._task, mark.next))
            for table in ("causal_log", "causal_epoch", "causal_mark"):
                db.execute(f"DELETE FROM {table} WHERE task = ?", (self._task,))
            epochs = [(self._task, epoch, first) for epoch, first in account.epochs.items()]
            db.executemany("INSERT INTO causal_epoch VALUES(?, ?, ?)", epochs)
            self._store_deltas(db, account.store_state().logs)
            self._store_marks(db, account, 0)
            return account.store_state()

    def close(self) -> None:
        """Close the file; what was written stays."""
        self._copier.close()
        self._copier = LogCopier(self._sink.path)
        db, self._db, self._account = self._db, None, None
        if db is not None:
            db.close()

    def _connect(self) -> sqlite3.Connection:
        """A connection in WAL mode; several tasks may be changing a new file to it at the same time."""
        deadline_s = time.monotonic() + self._sink.busy_ms / 1000
        while True:
            db = None
            try:
                if not self._expected:
                    with outside(self._sink.path):  # its log and its index get the mode of the file
                        os.close(opened(self._sink.path, os.O_RDWR, mode_of_files()))
                where, wait_s = f"{self._sink.path.as_uri()}?mode=rw", self._sink.busy_ms / 1000
                db = sqlite3.connect(where, wait_s, isolation_level=None, check_same_thread=False, uri=True)
                mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                if mode != "wal":
                    raise PipelineError(
                        f"{self._sink.path}: this file system cannot hold a SQLite log; give another path"
                    )
                db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self._sink.durability or 'process']}")
                db.execute(f"PRAGMA wal_autocheckpoint = {PAGES_MAX}")
                return db
            except sqlite3.Error as problem:
                if db is not None:
                    db.close()
                if code_of(problem) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                    raise translated(problem, self._sink.path) from problem
                time.sleep(0.01)

    @contextmanager
    def _atomic(self) -> Iterator[sqlite3.Connection]:
        """Open one write transaction; an error inside rolls it back, and makes the account be read again."""
        db = self._db
        if db is None:
            raise Unavailable(f"the store of sink task {self._task} is not open; open it first")
        try:
            self._copier.before(db)
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        except BaseException as problem:
            self._account = None
            if db.in_transaction:
                self._roll_back(db)
            if isinstance(problem, sqlite3.Error):
                raise translated(problem, self._sink.path) from problem
            raise

    def _roll_back(self, db: sqlite3.Connection) -> None:
        try:
            db.execute("ROLLBACK")
        except sqlite3.Error as problem:
            # A connection that cannot roll back is of no more use; closing it rolls back.
            self.close()
            raise translated(problem, self._sink.path) from problem

    def _check_file(self) -> None:
        """Raise `Unavailable` where the file was replaced: SQLite would continue to write into a deleted one."""
        try:
            at = os.stat(self._sink.path)
        except OSError:
            at = None
        if self._db is not None and (at is None or (at.st_dev, at.st_ino) != self._file):
            raise moved(self._sink.path)

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Make the tables, or refuse a file of another program."""
        version = db.execute("PRAGMA user_version").fetchone()[0]
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
        if version > _VERSION and "causal_task" in there:
            raise PipelineError(f"{self._sink.path} was written by a later version of this package; give another path")
        if "causal_task" in there:
            if self._sink.keeps_rows != ("output" in there):
                raise PipelineError(f"{self._sink.path} was written by another kind of sink; give another path")
            if version < _VERSION:
                for statement in _SCHEMA:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {_VERSION}")
            return
        if there.intersection((*_OURS, "tally")):
            raise PipelineError(f"{self._sink.path} has a table output that no sink made; give another path")
        for statement in _SCHEMA:
            db.execute(statement)
        if self._sink.keeps_rows:
            db.execute(_OUTPUT)
        else:
            db.execute("CREATE VIEW tally AS SELECT task, next AS rows, ended FROM causal_task")
        db.execute(f"PRAGMA user_version = {_VERSION}")

    def _make_room(self, db: sqlite3.Connection) -> None:
        """Make the file that of the newest run; rows of an earlier one are refused, or removed with "replace"."""
        self._check_newest(db)
        rows = db.execute("SELECT total(next) FROM causal_task WHERE run != ?", (self._run,)).fetchone()[0]
        if rows and self._sink.existing == "refuse":
            raise foreign_rows(self._sink.path, type(self._sink).__name__)
        foreign = "(SELECT task FROM causal_task WHERE run != ?)"
        for table in _OURS if self._sink.keeps_rows else _OURS[1:]:
            if table != "causal_task":
                db.execute(f"DELETE FROM {table} WHERE task IN {foreign}", (self._run,))
        db.execute("DELETE FROM causal_task WHERE run != ?", (self._run,))

    def _check_newest(self, db: sqlite3.Connection) -> None:
        check_newest(self._sink.path, self._run, db.execute("SELECT max(run) FROM causal_task").fetchone()[0])

    def _not_owner(self, db: sqlite3.Connection) -> Fenced:
        """The error of a process that another one has replaced; raises `Superseded` if that one is of a newer run."""
        self._check_newest(db)
        return fenced(self._task, self._incarnation)

    def _stored_owner(self, db: sqlite3.Connection) -> tuple[str, int]:
        owner = db.execute("SELECT run, incarnation FROM causal_task WHERE task = ?", (self._task,)).fetchone()
        return owner if owner is not None else ("", -1)

    def _current(self, db: sqlite3.Connection) -> Account:
        """The account in memory, or read again after a failure; never one of a younger incarnation."""
        if self._account is None:
            account = self._load(db)
            if account is None:
                raise self._not_owner(db)
            account.fence(self._run, self._incarnation)
            self._account = account
        return self._account

    def _load(self, db: sqlite3.Connection) -> Account | None:
        row = db.execute(
            "SELECT run, incarnation, next, digest, last, kept_from, ended FROM causal_task WHERE task = ?",
            (self._task,),
        ).fetchone()
        if row is None:
            return None
        run, incarnation, next_, digest, last, kept_from, ended = row
        account = Account(
            self._task, run, incarnation, next_, int.from_bytes(digest, "big"), last, kept_from, bool(ended)
        )
        withdrawn = db.execute("SELECT rows FROM causal_withdrawn WHERE task = ?", (self._task,)).fetchone()
        account.withdrawn = withdrawn[0] if withdrawn is not None else 0
        account.refused = refused_below(db, self._task, next_)
        account.epochs.update(db.execute("SELECT epoch, first FROM causal_epoch WHERE task = ?", (self._task,)))
        self._sequence = 0
        try:
            for epoch, sequence, deltas in db.execute(
                "SELECT epoch, sequence, deltas FROM causal_log WHERE task = ? ORDER BY epoch, sequence", (self._task,)
            ):
                self._sequence = max(self._sequence, sequence + 1)
                account.merge(LogDelta(owner, epoch, start, logged) for owner, start, logged in decode(deltas))
            self._load_marks(db, account)
        except (CausalError, TypeError, ValueError) as problem:
            where = "tables causal_log and causal_mark"
            raise CorruptData(f"{self._sink.path}: {where} of task {self._task}: {problem}") from None
        return account

    def _store_deltas(self, db: sqlite3.Connection, fresh: tuple[LogDelta, ...]) -> None:
        """Insert one row per epoch of the bundle: appending never touches what is stored already."""
        by_epoch: dict[int, list[list[object]]] = {}
        for delta in fresh:  # lists: a tuple costs MessagePack five times as much
            by_epoch.setdefault(delta.epoch, []).append([delta.task, delta.offset, delta.bytes])
        for epoch, deltas in by_epoch.items():
            row = (self._task, epoch, self._sequence, encode_loosely(deltas))
            db.execute("INSERT INTO causal_log VALUES(?, ?, ?, ?)", row)
            self._sequence += 1

    def _store_marks(self, db: sqlite3.Connection, account: Account, start: int) -> None:
        """Add the marks from `start` on."""
        if start == len(account.marks):
            return
        rows = [
            (self._task, mark.next, mark.digest.to_bytes(8, "big"), mark.epoch, mark.rollback, encode(mark.depends))
            for mark in account.marks[start:]
        ]
        db.executemany(_MARK, [(task, self._sequence + place, *rest) for place, (task, *rest) in enumerate(rows)])
        self._sequence += len(rows)

    def _load_marks(self, db: sqlite3.Connection, account: Account) -> None:
        for sequence, next_, digest, epoch, rollback, depends in db.execute(
            "SELECT sequence, next, digest, epoch, rollback, depends FROM causal_mark WHERE task = ? ORDER BY sequence",
            (self._task,),
        ):
            self._sequence = max(self._sequence, sequence + 1)
            extents = tuple((owner, at, extent) for owner, at, extent in decode(depends))
            account.marks.append(WithdrawPoint(next_, int.from_bytes(digest, "big"), epoch, rollback, extents))
            account.mark_bytes.append(0)
            account.mark_refused.append(refused_below(db, self._task, next_) if account.refused else 0)
