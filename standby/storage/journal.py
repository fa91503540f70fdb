"""The supervisor's decisions, stored in SQLite in the order in which they were made.

There is one writer; a second supervisor on the same journal is refused.  With WAL and synchronous=NORMAL, a committed
decision survives the death of every process at any moment, and no promotion waits for an fsync.  With `durability =
"os"`, synchronous=FULL is used, so that a decision also survives a power failure.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

from causal.errors import CorruptData, PeerViolation, PipelineError, Unavailable
from causal.process.forks import close as close_lock
from causal.process.forks import keep_from_children
from causal.records.values import decode, encode
from causal.sealed import seal_bytes, unseal_bytes
from standby.leadership.terms import CHECKPOINTS_KEPT
from standby.supervision.effects import Record

FILE = "journal.sqlite"
LOCK = "supervisor.lock"
"""A separate file rather than the journal itself, because SQLite uses its own locks on the journal."""

FORMAT = 1
"""The `user_version` of the file; a file with a different format is not read."""

BUSY_S = 5.0
RETRY_S = 0.1


class Journal:
    """The list of one supervisor's records; a record is removed when later records make it unnecessary."""

    def __init__(self, directory: Path, sync: bool = False) -> None:
        """Open the journal, creating it if it does not exist.

        Args:
            sync: whether appended records must also survive a power failure.

        Raises:
            PipelineError: another supervisor has opened the journal, or another version has written it.
            CorruptData: the journal is damaged.
            Unavailable: the journal cannot be opened or written.
        """
        self.written = 0
        self.problem = ""
        self.wake: None = None
        self._path = directory / FILE
        self._checkpoints: list[int] = []
        """The row numbers of the `checkpoint` decisions."""
        self._lock = lock_of(directory)
        try:
            self._store = _opened(self._path, sync)
            (version,) = self._store.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error as problem:
            close_lock(self._lock)
            if isinstance(problem, sqlite3.OperationalError):
                remedy = "free space, repair the disk or use another --state-dir"
                raise Unavailable(f"{self._path}: {problem}; {remedy}") from None
            raise CorruptData(_damaged(self._path, problem)) from None
        if version != FORMAT:
            self.close()
            raise PipelineError(
                f"{self._path} was written by another version of causal-streams; resume with that version, or "
                "start again without --resume"
            )

    def append(self, records: Iterable[Record]) -> None:
        """Write decisions in one transaction.

        Raises:
            Unavailable: the decisions could not be written; none of them was.
        """
        bodies = [(record["kind"], encode(dict(record))) for record in records]
        if not bodies:
            return
        checkpoints = list(self._checkpoints)
        try:
            self._store.execute("BEGIN IMMEDIATE")
            (place,) = self._store.execute("SELECT ifnull(max(id), 0) FROM decisions").fetchone()
            for kind, body in bodies:
                place += 1
                row = (place, seal_bytes(b"%d" % place, body))
                self._store.execute("INSERT INTO decisions (id, body) VALUES (?, ?)", row)
                if kind == "checkpoint":
                    checkpoints.append(place)
            self._store.executemany(
                "DELETE FROM decisions WHERE id = ?", [(p,) for p in checkpoints[:-CHECKPOINTS_KEPT]]
            )
            self._store.execute("COMMIT")
        except sqlite3.Error as problem:
            if self._store.in_transaction:
                self._store.execute("ROLLBACK")
            raise Unavailable(f"{self._path} cannot be written: {problem}") from None
        self._checkpoints = checkpoints[-CHECKPOINTS_KEPT:]
        self.written += len(bodies)

    def check(self) -> None:
        """Do nothing, because no other supervisor can write here."""

    def records(self) -> tuple[Record, ...]:
        """Return all decisions that are still necessary, oldest first.

        Raises:
            CorruptData: one of them cannot be read.
        """
        try:
            rows = self._store.execute("SELECT id, body FROM decisions ORDER BY id").fetchall()
            decisions = [(place, decode(_intact(place, body))) for place, body in rows]
            self._checkpoints = [place for place, record in decisions if record["kind"] == "checkpoint"]
            return tuple(record for _, record in decisions)
        except (sqlite3.Error, PeerViolation, TypeError, KeyError) as problem:
            known = isinstance(problem, (sqlite3.Error, PeerViolation))
            raise CorruptData(_damaged(self._path, problem if known else "decisions are missing")) from None

    def close(self) -> None:
        self._store.close()
        close_lock(self._lock)


def journaled(directory: Path) -> tuple[Record, ...]:
    """Return the decisions in the journal of a directory to which no process writes; empty if there is no journal.

    Raises: as `Journal`.
    """
    if not (directory / FILE).exists():
        return ()
    journal = Journal(directory)
    try:
        return journal.records()
    finally:
        journal.close()


def lock_of(directory: Path) -> int:
    """Acquire the lock that allows a job only one supervisor on this machine, and return its descriptor.

    Raises:
        PipelineError: another supervisor holds the lock.
        Unavailable: the lock file cannot be opened.
    """
    try:
        lock = keep_from_children(os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as problem:
        raise Unavailable(f"{directory / LOCK} cannot be opened: {problem.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        close_lock(lock)
        raise PipelineError(f"another supervisor has {directory / FILE} open; `causal status` shows its job") from None
    return lock


def _intact(place: int, row: bytes) -> bytes:
    try:
        return unseal_bytes(b"%d" % place, row)  # SQLite itself has no digests
    except ValueError:
        raise PeerViolation(f"the digest of decision {place} does not match") from None


def _damaged(path: Path, problem: object) -> str:
    return f"{path} is damaged ({problem}); start the job again without --resume"


def _opened(path: Path, sync: bool) -> sqlite3.Connection:
    """Open the database and create its table.

    Retry for `BUSY_S`, because disk space may be freed, or a process that is ending may still be using the file.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        store = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            store.execute("PRAGMA journal_mode=WAL")
            store.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
            store.execute("BEGIN IMMEDIATE")
            if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'decisions'").fetchone():
                store.execute("CREATE TABLE decisions (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
                store.execute(f"PRAGMA user_version={FORMAT}")
            store.execute("COMMIT")
            return store
        except sqlite3.DatabaseError as problem:
            store.close()
            passing = problem.sqlite_errorcode & 0xFF in (
                sqlite3.SQLITE_IOERR,
                sqlite3.SQLITE_FULL,
                sqlite3.SQLITE_BUSY,
            )
            if not passing or time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_S)
