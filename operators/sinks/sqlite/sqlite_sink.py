"""A sink that writes rows to a SQLite file, each exactly once, readable by any SQLite client at any moment.

    stream.sink("out", SqliteSink("out.db"))                   output(task, position, record): one row per record
    table.sink("out", SqliteSink("out.db", upsert=True))       output(key, record): one row per key of the table

One transaction contains the rows of a bundle, the position, the digest, the determinants and the check of the
incarnation. A reader therefore sees all of a bundle or nothing, and a zombie changes nothing, whenever it resumes.
Several sink tasks share one file; each has its own positions. `sqlite_tables` describes the tables.

A user may add constraints to `output` (a unique index, or a trigger that raises an error). A row that violates one is
refused, and the job's setting `on_error` determines what happens to the row.

Durability. With either setting, a commit survives the death of any process, including this one. "process" is SQLite's
synchronous=NORMAL in WAL mode: if the machine loses power, the file stays intact but may lack the most recent bundles.
"os" is synchronous=FULL: each bundle is on disk before it is acknowledged.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from causal.errors import PipelineError
from causal.ports import SinkStore
from operators.sinks.contract.options import (
    EXISTING,
    WAIT_MS_MAX,
    absolute,
    check_choice,
    check_durability,
    check_range,
)
from operators.sinks.contract.sink import Sink, check_writable
from operators.sinks.contract.upserts import UNDO_ROWS, UNDO_ROWS_MAX
from operators.sinks.sqlite.sqlite_errors import translated
from operators.sinks.sqlite.sqlite_store import SqliteStore


class SqliteSink(Sink):
    """A sink that writes rows to the table `output(task TEXT, position INTEGER, record TEXT)` of a SQLite file.

    Needs: nothing.
    Readers: table `output(task, position, record)` of a file; `output(key, record)` with `upsert`.
    Step: one transaction.
    Fence: its row is updated only for its incarnation.
    Server: –.
    Power: `durability="os"`.
    Limits: one machine, and no network file system.

    Args:
        path: the file, which is created if it is missing; its directory must exist. A relative path is relative to the
            working directory when the sink is created. Network file systems are not supported, because SQLite's locks
            do not work there.
        existing: what to do with rows of an earlier run: "refuse" to start, or "replace" them.
        durability: "process" or "os" (see the module); by default, the job's.
        busy_ms: how long to wait for another process that is writing to the file before raising `Unavailable`.
        upsert: keep one row per key of a table, in `output(key TEXT, record TEXT)`, for `table.sink`.
        undo_rows: with `upsert`, how many of its latest revisions a task can undo for a return to a savepoint.
    """

    keeps_rows = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        existing: str = "refuse",
        durability: str | None = None,
        busy_ms: int = 2000,
        upsert: bool = False,
        undo_rows: int = UNDO_ROWS,
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
        check_range(name, "undo_rows", undo_rows, 0, UNDO_ROWS_MAX)
        self.upsert = upsert
        self.undo_rows = undo_rows

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task; the store accesses the file only when it is opened."""
        return SqliteStore(self, task)

    def check(self) -> None:
        """Raise `PipelineError` if the file cannot be created or written to."""
        check_writable(self.path.parent, type(self).__name__)
        if self.path.exists() and not (self.path.is_file() and os.access(self.path, os.W_OK)):
            raise PipelineError(f"{type(self).__name__}: {self.path} is not a writable file; use another path")

    def newest_run(self) -> str | None:
        """Return the newest run that has opened the file."""
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
