"""A reader of a `SqliteSink` in a process of its own: which rows it saw, when, and in which order.

    python -m benchmarks.harness.sink_reader DATABASE SEEN [--whole]

It asks about every half millisecond whether anything was committed, and has SQLite count what is new: a look at a
thousand rows takes 0.3 ms of the processors that the job needs, fetching them 1.4 ms.  TOLD gets one JSON line per
look and sink task: [when in monotonic ns, task, first position, number of rows], with --whole also their texts, which
are fetched then.  What a line says was visible at that time to anybody who had looked.  It ends when its standard input
is closed, after a last look, and prints how many rows it has seen in all.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.harness import children
from benchmarks.harness.runs import RunFailed

LOOK_S = 0.0005
WAIT_S = 0.01
END_WITHIN_S = 60.0
_NEW = "FROM output WHERE task = ?1 AND position > ?2"
_COUNTED = f"SELECT (SELECT count(*) {_NEW}), (SELECT min(position) {_NEW}), (SELECT max(position) {_NEW})"
_ROWS = "SELECT position, record FROM output WHERE task = ? AND position > ? ORDER BY position"


@dataclass(frozen=True, slots=True)
class Seen:
    """Rows `first` to `first + count - 1` of a sink task, seen together at `at_ns`; `rows` if texts were kept."""

    at_ns: int
    task: str
    first: int
    count: int
    rows: tuple[str, ...] = ()


class Looking:
    """Finds what is new; never the same row twice.

    Args:
        database: need not be there yet.
        lines: gets the lines.
        whole: with texts.
    """

    def __init__(self, database: Path, lines: IO[str], whole: bool) -> None:
        self._database = database
        self._lines = lines
        self._whole = whole
        self._last: dict[str, int] = {}
        self._version = -1
        self.rows = 0

    def connected(self) -> sqlite3.Connection | None:
        """Return a connection; None while there is no sink yet."""
        if not self._database.exists():
            return None
        connection = sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=5.0, isolation_level=None)
        try:
            connection.execute("SELECT task FROM causal_task LIMIT 1").fetchall()
        except sqlite3.OperationalError:
            connection.close()
            return None
        return connection

    def look(self, connection: sqlite3.Connection) -> None:
        """Find what was committed since the last look."""
        [version] = connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return
        for (task,) in connection.execute("SELECT task FROM causal_task ORDER BY task").fetchall():
            asked = (task, self._last.get(task, -1))
            [(count, first, last)] = [(0, 0, 0)] if self._whole else connection.execute(_COUNTED, asked)
            if count and last - first == count - 1:
                self._note(time.monotonic_ns(), task, first, count, last)
            elif count or self._whole:
                self._fetch(connection, asked)
        self._lines.flush()
        self._version = version

    def _fetch(self, connection: sqlite3.Connection, asked: tuple[str, int]) -> None:
        """Row by row: their texts are wanted, or some are missing among them."""
        rows_found = connection.execute(_ROWS, asked).fetchall()
        at_ns = time.monotonic_ns()
        for first, rows in _together(rows_found):
            self._note(at_ns, asked[0], first, len(rows), rows_found[-1][0], *[rows] * self._whole)

    def _note(self, at_ns: int, task: str, first: int, count: int, last: int, *texts: list[str]) -> None:
        self._lines.write(json.dumps([at_ns, task, first, count, *texts]) + "\n")
        self.rows += count
        self._last[task] = last


def _together(rows: list[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Run of positions without gaps: rows may be missing in the middle only if a sink is broken."""
    start = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or rows[end][0] != rows[end - 1][0] + 1:
            yield rows[start][0], [record for _, record in rows[start:end]]
            start = end


@dataclass(slots=True)
class Reader:
    """One that runs."""

    path: Path
    process: subprocess.Popen[str]

    def so_far(self) -> list[Seen]:
        """Return all lines that are whole."""
        text = self.path.read_text() if self.path.exists() else ""
        return read(text[: text.rfind("\n") + 1])

    def end(self) -> list[Seen]:
        """Return a last look, and everything that was seen.

        Raises:
            RunFailed: the reader failed.
        """
        try:
            _, said = self.process.communicate(timeout=END_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise RunFailed("the reader of the sink does not end") from None
        if self.process.returncode:
            lines = said.strip().splitlines() or ["it said nothing"]
            raise RunFailed(f"the reader of the sink failed: {lines[-1]}")
        return read(self.path.read_text())


def read(text: str) -> list[Seen]:
    """Return what lines say."""
    seen: list[Seen] = []
    for line in text.splitlines():
        at_ns, task, first, count, *texts = json.loads(line)
        seen.append(Seen(at_ns, task, first, count, tuple(texts[0]) if texts else ()))
    return seen


@contextmanager
def reading(database: Path, lines: Path, whole: bool = False) -> Iterator[Reader]:
    """Read a sink meanwhile; `Reader.end` gives what was seen.  Whatever happens, the process has ended afterwards."""
    command = [sys.executable, "-m", "benchmarks.harness.sink_reader", str(database), str(lines)]
    process = children.opened(
        command + ["--whole"] * whole, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=children.ROOT,
    )  # fmt: skip
    try:
        yield Reader(lines, process)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def main() -> int:
    """Look until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness.sink_reader")
    parser.add_argument("database", type=Path)
    parser.add_argument("seen", type=Path)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    with open(options.seen, "w") as lines:
        looking = Looking(options.database, lines, options.whole)
        connection = None
        while not _ended(poll):
            connection = looking.connected() if connection is None else connection
            if connection is None:
                time.sleep(WAIT_S)
                continue
            looking.look(connection)
            time.sleep(LOOK_S)
        connection = looking.connected() if connection is None else connection
        if connection is not None:
            with closing(connection):
                looking.look(connection)
    print(looking.rows)
    return 0


def _ended(poll: select.poll) -> bool:
    return any(mask & select.POLLHUP or not os.read(descriptor, 4096) for descriptor, mask in poll.poll(0))


if __name__ == "__main__":
    sys.exit(main())
