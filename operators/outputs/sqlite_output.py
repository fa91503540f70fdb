"""A reader of the output of a `SqliteSink`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from causal.errors import PipelineError, Unavailable
from operators.outputs.output import Piece

ROWS_AT_ONCE = 5000
BUSY_S = 5.0


class SqliteOutput:
    """A reader of one database file, which it reopens for each look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run = ""
        self._tasks: dict[str, tuple[int, int]] = {}
        self._withdrawn: dict[str, int] = {}
        self._ended = False

    @property
    def run(self) -> str:
        """See `Output.run`."""
        return self._run

    @property
    def ended(self) -> bool:
        """See `Output.ended`."""
        return self._ended

    def look(self) -> None:
        """See `Output.look`."""
        db = self._connect()
        with closing(db):
            try:
                there = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
                if not {"causal_task", "output"} <= there:
                    raise PipelineError(f"{self._path} has no rows of a SqliteSink; use the file of a SqliteSink")
                if "causal_undo" in there:
                    raise PipelineError(
                        f"{self._path} has one row per key, which change and have no positions; read the table itself: "
                        "SELECT key, record FROM output"
                    )
                db.execute("BEGIN")
                tasks = db.execute("SELECT task, run, next, ended FROM causal_task").fetchall()
                marks = dict(db.execute("SELECT task, min(next) FROM causal_mark GROUP BY task"))
                counted = "causal_withdrawn" in there  # a file that an earlier version of the project wrote may lack it
                withdrawn = dict(db.execute("SELECT task, rows FROM causal_withdrawn")) if counted else {}
                db.execute("COMMIT")
            except sqlite3.Error as problem:
                raise self._unavailable(problem) from problem
        self._run = max((run for _, run, _, _ in tasks), default="")
        self._tasks = {task: (next_ if ended else marks.get(task, next_), next_) for task, _, next_, ended in tasks}
        self._withdrawn = {task: withdrawn.get(task, 0) for task in self._tasks}
        self._ended = bool(tasks) and all(ended for *_, ended in tasks)

    def ends(self, uncovered: bool) -> dict[str, int]:
        """See `Output.ends`."""
        return {task: next_ if uncovered else covered for task, (covered, next_) in self._tasks.items()}

    def withdrawn(self) -> dict[str, int]:
        """See `Output.withdrawn`."""
        return self._withdrawn

    def hint(self, task: str, position: int) -> Any:
        """Return None: no hint is needed, because the table is ordered by position."""
        return None

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Iterator[Piece]:
        """See `Output.rows`."""
        db = self._connect()
        with closing(db):
            try:
                asked = "SELECT position, record FROM output WHERE task = ? AND position >= ? AND position < ?"
                cursor = db.execute(f"{asked} ORDER BY position", (task, start, stop))
                while rows := cursor.fetchmany(ROWS_AT_ONCE):
                    positions, texts = zip(*rows, strict=True)
                    yield positions, list(texts)
            except sqlite3.Error as problem:
                raise self._unavailable(problem) from problem

    def _connect(self) -> sqlite3.Connection:
        try:
            uri = f"{self._path.as_uri()}?mode=ro"
            return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
        except sqlite3.Error as problem:
            raise self._unavailable(problem) from problem

    def _unavailable(self, problem: sqlite3.Error) -> Unavailable:
        return Unavailable(f"{self._path} cannot be read ({problem}); check the file and its directory")
