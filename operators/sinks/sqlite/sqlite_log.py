"""A thread that keeps SQLite's write-ahead log short without delaying the writer.

By default, a writer copies its log into the file every thousand pages. It then waits for the disk twice, 15 to 40 ms,
in the middle of a bundle. Here, a thread with its own connection copies the log while bundles are written, so that only
a short rest of the log remains. Occasionally, the writer copies that rest between two transactions so that the log can
restart, because the log can be copied completely only while nothing is being written.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

COPY_BYTES = 4 << 20
"""The thread copies whenever about this much was written."""
PAGES_KEPT_MAX = 2048
"""A longer log restarts: a successor after a crash has to read all of it, 2 ms of CPU for 1,000 pages."""
PAGES_MAX = 8 * PAGES_KEPT_MAX
"""The length at which a writer copies the whole log itself, as without the thread, for a disk that is too slow."""
_BUNDLE_BYTES = 4 * 4096
"""An estimate of the pages that each transaction writes besides its rows."""
_COPY = "PRAGMA wal_checkpoint(PASSIVE)"
_END_WITHIN_S = 5.0


class LogCopier:
    """The copying thread of one writer of one file, which is started when it is first needed.

    Only the writer calls the methods.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written_bytes = 0
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._over = False
        self._rest_is_short = False

    def before(self, db: sqlite3.Connection) -> None:
        """Copy the rest of the log, if this is due, between two of the writer's transactions.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        if self._rest_is_short:
            self._rest_is_short = False
            db.execute(_COPY).fetchone()

    def wrote(self, rows_bytes: int) -> None:
        """Record that a transaction with rows of `rows_bytes` bytes has been committed."""
        self._written_bytes += _BUNDLE_BYTES + 2 * rows_bytes
        if self._written_bytes < COPY_BYTES:
            return
        self._written_bytes = 0
        if self._thread is None:
            self._thread = threading.Thread(target=self._copy, name="sqlite-log", daemon=True)
            self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Stop the thread, within a few seconds, and close its connection."""
        if self._thread is not None:
            self._over = True
            self._wake.set()
            self._thread.join(_END_WITHIN_S)

    def _copy(self) -> None:
        try:
            with closing(sqlite3.connect(f"file:{quote(os.fsencode(self._path))}?mode=rw", uri=True)) as db:
                while not self._over:
                    _, pages, _ = db.execute(_COPY).fetchone()
                    self._rest_is_short = pages >= PAGES_KEPT_MAX
                    self._wake.wait()
                    self._wake.clear()
        except sqlite3.Error:
            return  # the writer encounters the same error at its next transaction or at PAGES_MAX
