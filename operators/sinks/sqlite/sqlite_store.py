"""The store of one sink task, in a SQLite file; see `sqlite_sink` for its promises."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from causal.errors import CausalError, CorruptData, PipelineError, fenced
from causal.ports import Bundle, StoreState, WithdrawPoint
from causal.records.values import decode, encode
from causal.storage.lock import absent, moved, outside
from causal.storage.modes import mode_of_files, opened
from operators.sinks.contract.account import LOG, Account, Part, mark_parts, take_part
from operators.sinks.contract.account_store import Before, WithdrawingConnectedStore
from operators.sinks.contract.upserts import undo_floor, undo_limit, undo_obstacle
from operators.sinks.sqlite import sqlite_hidden, sqlite_upserts
from operators.sinks.sqlite.sqlite_errors import code_of, translated
from operators.sinks.sqlite.sqlite_log import PAGES_MAX, LogCopier
from operators.sinks.sqlite.sqlite_rows import insert, note_refused, refused_below
from operators.sinks.sqlite.sqlite_tables import Target, check_is_newest, check_one_table, make_room, make_tables

_SYNCHRONOUS = {"process": "NORMAL", "os": "FULL"}
"""The setting of `synchronous`, by durability."""
_MARK = "INSERT INTO causal_mark VALUES(?, ?, ?, ?, ?, ?, ?)"
_MINE = "task = ? AND run = ? AND incarnation = ?"
_ADVANCE = f"UPDATE causal_task SET next = ?, digest = ?, last = ?, ended = ? WHERE {_MINE} AND next = ? AND last = ?"


class SqliteStore(WithdrawingConnectedStore[sqlite3.Connection]):
    """The account and rows of one sink task. Only one thread may use the store at a time."""

    _errors = sqlite3.Error
    _losses = "it was restored from a copy, or another program has written to it"

    def __init__(self, sink: Target, task: str) -> None:
        super().__init__(task, str(sink.path))
        self._sink = sink
        self._file: os.stat_result | None = None
        """The file that was opened; where another one lies at the path, nothing is written to either."""
        self._expected = False
        self._sequence = 0
        self._copier = LogCopier(sink.path)

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`; also raises `PipelineError` if no sink created the file's tables."""
        self._file = None
        return super().open(task, run, incarnation)

    def expect(self, counted: bool) -> None:
        """See `causal.ports.LastingStore.expect`."""
        self._expected = True

    def _drop(self) -> None:
        self._copier.close()
        self._copier = LogCopier(self._sink.path)
        super()._drop()

    # -- the file ------------------------------------------------------------------------------------------

    @contextmanager
    def _connected(self, bundle: Bundle | None) -> Iterator[sqlite3.Connection]:
        """Yield the connection inside one write transaction, which is rolled back if an error is raised."""
        self._check_file()
        if self._connection is None:
            self._connection = self._connect()
        db = self._connection
        self._copier.before(db)
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        if bundle is not None:
            self._copier.wrote(len(bundle.rows))

    def _connect(self) -> sqlite3.Connection:
        """Return a connection in WAL mode; other tasks may be switching a new file to this mode at the same time."""
        deadline_s = time.monotonic() + self._sink.busy_ms / 1000
        while True:
            db = None
            try:
                if not self._expected:
                    with outside(self._sink.path):  # the WAL and its index receive the mode of the file
                        os.close(opened(self._sink.path, os.O_RDWR, mode_of_files()))
                where, wait_s = f"{self._sink.path.as_uri()}?mode=rw", self._sink.busy_ms / 1000
                db = sqlite3.connect(where, wait_s, isolation_level=None, check_same_thread=False, uri=True)
                mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                if mode != "wal":
                    raise PipelineError(
                        f"{self._sink.path}: this file system does not support the write-ahead log of SQLite; use "
                        "another path"
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

    def _check_file(self) -> None:
        """Raise `Unavailable` if the file was replaced, because SQLite would continue to write to the deleted file."""
        try:
            at = os.stat(self._sink.path)
        except OSError:
            at = None
        if self._file is not None and (at is None or not os.path.samestat(at, self._file)):
            raise moved(self._sink.path)
        if self._expected and at is None:
            raise absent(self._sink.path)

    def _translated(self, problem: sqlite3.Error) -> CausalError:
        return translated(problem, self._sink.path)

    # -- the account ---------------------------------------------------------------------------------------

    def _claimed(self, db: sqlite3.Connection) -> Account:
        task, run, incarnation = self._task, self._run, self._incarnation
        make_tables(db, self._sink)
        make_room(db, self._sink, run)
        check_one_table(db, self._sink, task)
        account = self._loaded(db)
        if account is None:
            account = Account(task, run, incarnation)
            fresh = (task, run, incarnation, bytes(8), b"")
            db.execute("INSERT INTO causal_task VALUES(?, ?, ?, 0, ?, ?, 0, 0)", fresh)
        elif account.incarnation > incarnation:
            raise fenced(task, incarnation)
        account.incarnation = incarnation
        db.execute("UPDATE causal_task SET incarnation = ? WHERE task = ?", (incarnation, task))
        self._file = os.stat(self._sink.path)
        return account

    def _owner(self, db: sqlite3.Connection) -> tuple[str, int] | None:
        owner: tuple[str, int] | None
        owner = db.execute("SELECT run, incarnation FROM causal_task WHERE task = ?", (self._task,)).fetchone()
        return owner

    def _check_newest(self, db: sqlite3.Connection) -> None:
        check_is_newest(db, self._sink, self._run)

    def _advance(
        self, db: sqlite3.Connection, account: Account, before: Before, parts: Sequence[Part], bundle: Bundle
    ) -> bool:
        if not self._moved(db, account, before):
            return False
        if self._sink.keeps_rows and bundle.count:
            (sqlite_upserts.upsert if self._sink.upsert else insert)(db, self._sink.path, self._task, bundle)
        elif bundle.refused:
            note_refused(db, self._task, bundle)
        if account.epochs.get(bundle.epoch) == bundle.first:
            begins = (self._task, bundle.epoch, bundle.first)
            db.execute("INSERT OR IGNORE INTO causal_epoch VALUES(?, ?, ?)", begins)
        self._store(db, parts)
        return True

    def _shorten(self, db: sqlite3.Connection, account: Account, epoch: int) -> bool:
        key = (self._task, self._run, self._incarnation)
        if db.execute(f"UPDATE causal_task SET kept_from = ? WHERE {_MINE}", (epoch, *key)).rowcount != 1:
            return False
        db.execute("DELETE FROM causal_log WHERE task = ? AND epoch < ?", (self._task, epoch))
        db.execute("DELETE FROM causal_epoch WHERE task = ? AND epoch < ?", (self._task, epoch))
        db.execute("DELETE FROM causal_mark WHERE task = ?", (self._task,))
        self._store(db, mark_parts(account, 0))
        if self._sink.upsert:
            marks_from = account.marks[0].next if account.marks else None
            sqlite_upserts.forget(db, self._task, undo_floor(account.next, marks_from, self._sink.undo_rows))
        sqlite_hidden.delete_some(db, sqlite_hidden.PER_CHECKPOINT)
        return True

    def _take_back(self, db: sqlite3.Connection, account: Account, before: Before, parts: Sequence[Part]) -> bool:
        if not self._moved(db, account, before):
            return False
        db.execute("INSERT OR REPLACE INTO causal_withdrawn VALUES(?, ?)", (self._task, account.withdrawn))
        db.execute("DELETE FROM causal_refused WHERE task = ? AND position >= ?", (self._task, account.next))
        if self._sink.upsert:
            sqlite_upserts.undo(db, self._task, account.next)
        elif self._sink.keeps_rows:
            sqlite_hidden.withdraw(db, self._task, account.next, before[0])
        for table in ("causal_log", "causal_epoch", "causal_mark"):
            db.execute(f"DELETE FROM {table} WHERE task = ?", (self._task,))
        epochs = [(self._task, epoch, first) for epoch, first in account.epochs.items()]
        db.executemany("INSERT INTO causal_epoch VALUES(?, ?, ?)", epochs)
        self._store(db, parts)
        return True

    def limit(self, rows: int) -> str:
        """See `causal.ports.ReturningStore.limit`."""
        return undo_limit(self._sink.undo_rows, rows) if self._sink.upsert else ""

    def _obstacle(self, db: sqlite3.Connection, account: Account, next_: int) -> str:
        if not self._sink.upsert:
            return ""
        return undo_obstacle(sqlite_upserts.oldest_undo(db, self._task), account.next, next_)

    def _refused_below(self, db: sqlite3.Connection, next_: int) -> int:
        return refused_below(db, self._task, next_)

    def _moved(self, db: sqlite3.Connection, account: Account, before: Before) -> bool:
        """Replace the stored account with this one; return False if it is not at `before` or has another owner."""
        fresh = (account.next, account.digest.to_bytes(8, "big"), account.last, account.ended)
        return db.execute(_ADVANCE, (*fresh, self._task, self._run, self._incarnation, *before)).rowcount == 1

    def _store(self, db: sqlite3.Connection, parts: Sequence[Part]) -> None:
        """Insert one row per part, so that appending never changes stored parts."""
        for kind, epoch, body in parts:
            if kind == LOG:
                db.execute("INSERT INTO causal_log VALUES(?, ?, ?, ?)", (self._task, epoch, self._sequence, body))
            else:
                next_, digest, rollback, depends, _ = decode(body)
                at = (next_, digest.to_bytes(8, "big"), epoch, rollback, encode(depends))
                db.execute(_MARK, (self._task, self._sequence, *at))
            self._sequence += 1

    def _loaded(self, db: sqlite3.Connection) -> Account | None:
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
                take_part(account, LOG, epoch, deltas)
            self._load_marks(db, account)
        except (CausalError, TypeError, ValueError) as problem:
            where = "tables causal_log and causal_mark"
            raise CorruptData(f"{self._sink.path}: {where} of task {self._task}: {problem}") from None
        return account

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
