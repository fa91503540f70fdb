"""The rows of another job's output that a source has taken, as far as they may still be withdrawn.

    note        in the ingest log, with each batch: the run, and for each task the position after its last row and the
                number of rows ever withdrawn at that time
    this file   the text of each row, to retract it: a store deletes rows that it withdraws

A batch is written here before it is published. If its process dies between the two, the next one finds a batch here
that the log does not have, and reverts it. Only so many bytes of rows are kept; the oldest go first.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from causal.errors import CorruptData, Unavailable

ENTRY_BYTES = 64
"""The approximate size of a row on disk in addition to its text."""
ROWS_AT_ONCE = 100
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS taken(
        number INTEGER PRIMARY KEY, task TEXT NOT NULL, position INTEGER NOT NULL, text BLOB NOT NULL,
        taken_by INTEGER NOT NULL, withdrawn_by INTEGER)""",  # the batches that took it and retracted it
    "CREATE INDEX IF NOT EXISTS taken_by_position ON taken(task, position)",
    "CREATE TABLE IF NOT EXISTS removed(task TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID",
)


@dataclass(frozen=True, slots=True)
class Taken:
    """The part of an output that has been taken.

    Attributes:
        run: the run that wrote the rows; "" before the first row.
        next: by task, the position after the last row taken.
        withdrawn: by task, the number of rows ever withdrawn when the last row was taken.
    """

    run: str = ""
    next: Mapping[str, int] = field(default_factory=dict)
    withdrawn: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, note: str) -> Taken:
        """Return the content of a note.

        Raises:
            CorruptData: it is not a note of this source.
        """
        if not note:
            return cls()
        try:
            run, tasks = json.loads(note)
            return cls(
                str(run),
                {task: int(position) for task, (position, _) in tasks.items()},
                {task: int(count) for task, (_, count) in tasks.items()},
            )
        except (AttributeError, TypeError, ValueError) as problem:
            raise CorruptData(f"the note of the last batch cannot be read ({problem}); use a new --state-dir") from None

    def note(self) -> str:
        """Return the note of a batch after which this much has been taken."""
        return json.dumps([self.run, {task: [self.next[task], self.withdrawn[task]] for task in sorted(self.next)}])

    def after(self, run: str, task: str, next_: int, withdrawn: int) -> Taken:
        """Return how much has been taken after the rows of a task up to position `next_`."""
        return Taken(run, {**self.next, task: next_}, {**self.withdrawn, task: withdrawn})

    def may_be_withdrawn_from(self, task: str, withdrawn: int) -> int:
        """Return the lowest position from which taken rows may have been withdrawn since they were taken.

        The task had at least as many rows as were taken, so no more of these can have gone than were withdrawn.

        Args:
            withdrawn: the number of rows ever withdrawn by now.
        """
        next_ = self.next.get(task, 0)
        return max(0, next_ - (withdrawn - self.withdrawn.get(task, withdrawn)))


class TakenRows:
    """The texts of the rows taken last. Only one process uses the file at a time.

    Args:
        bytes_max: the size of the rows that are kept.
        batch: the number of the next batch of the log; a batch with this number is reverted.
    """

    def __init__(self, path: Path, bytes_max: int, batch: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # as durable as the log, whose note names the rows
            for statement in _SCHEMA:
                self._db.execute(statement)
            self._db.execute("DELETE FROM taken WHERE taken_by >= ?", (batch,))
            self._db.execute("UPDATE taken SET withdrawn_by = NULL WHERE withdrawn_by >= ?", (batch,))
            asked = "SELECT coalesce(sum(length(text) + ?), 0) FROM taken"
            self._bytes = int(self._db.execute(asked, (ENTRY_BYTES,)).fetchone()[0])
        except sqlite3.Error as problem:
            raise self._unavailable(problem) from problem

    def replace(self, task: str, from_: int, rows: Sequence[tuple[int, bytes]], batch: int) -> None:
        """Replace the rows of a task from a position on with the rows (position, text) of a batch, in one step."""
        try:
            self._db.execute("BEGIN")
            retracted = self._db.execute("DELETE FROM taken WHERE withdrawn_by IS NOT NULL RETURNING length(text)")
            self._bytes -= sum(size + ENTRY_BYTES for (size,) in retracted.fetchall())
            withdrawn = "UPDATE taken SET withdrawn_by = ? WHERE task = ? AND position >= ?"
            self._db.execute(withdrawn, (batch, task, from_))
            added = "INSERT INTO taken(task, position, text, taken_by) VALUES(?, ?, ?, ?)"
            self._db.executemany(added, ((task, position, text, batch) for position, text in rows))
            self._bytes += sum(len(text) + ENTRY_BYTES for _, text in rows)
            while self._bytes > self._bytes_max and self._remove_oldest():
                continue
            self._db.execute("COMMIT")
        except sqlite3.Error as problem:
            raise self._unavailable(problem) from problem

    def between(self, task: str, start: int, stop: int) -> list[tuple[int, bytes]]:
        """Return the rows of a task from position `start` up to `stop`, ascending."""
        try:
            asked = "SELECT position, text FROM taken WHERE task = ? AND position >= ? AND position < ?"
            rest = "AND withdrawn_by IS NULL ORDER BY position"
            return self._db.execute(f"{asked} {rest}", (task, start, stop)).fetchall()
        except sqlite3.Error as problem:
            raise self._unavailable(problem) from problem

    def complete_from(self, task: str) -> int:
        """Return the position from which all rows of a task are here."""
        try:
            row = self._db.execute("SELECT next FROM removed WHERE task = ?", (task,)).fetchone()
            return 0 if row is None else int(row[0])
        except sqlite3.Error as problem:
            raise self._unavailable(problem) from problem

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _remove_oldest(self) -> bool:
        asked = "DELETE FROM taken WHERE number IN (SELECT number FROM taken ORDER BY number LIMIT ?)"
        oldest = self._db.execute(f"{asked} RETURNING task, position, length(text)", (ROWS_AT_ONCE,)).fetchall()
        for task, position, size in oldest:
            self._bytes -= size + ENTRY_BYTES
            self._db.execute(
                "INSERT INTO removed VALUES(?1, ?2) ON CONFLICT DO UPDATE SET next = max(next, ?2)",
                (task, position + 1),
            )
        return bool(oldest)

    def _unavailable(self, problem: sqlite3.Error) -> Unavailable:
        return Unavailable(f"{self._path} cannot be used ({problem}); check the disk and its directory")


def changed_from(taken: Sequence[tuple[int, bytes]], present: Sequence[tuple[int, bytes]]) -> int | None:
    """Return the position of the first row taken that is not the row present there, or None if all still are."""
    rows = dict(present)
    return next((position for position, text in taken if rows.get(position) != text), None)
