"""Prints the rows of console sinks on the standard output of `causal run` while the job is running.

A thread follows the sinks' files, so that a slow reader delays only the output.  The disk space of rows that have been
printed is freed.  If the reader has closed the output, rows are dropped.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import BinaryIO

from causal.storage.console_rows import DIRECTORY
from causal.storage.files import replace_text
from causal.storage.punch_hole import free
from deploy.standard_streams import settle

LOOK_S = 0.1
CHUNK_BYTES_MAX = 1 << 20
FREED_BYTES = 1 << 20
"""The amount of shown rows after which their space is freed; it is also freed when all rows have been shown."""


class Console:
    """Prints each row once, and stores the offset in the job directory for the next `causal run`.

    Args:
        out: the binary stream to which rows are written.

    Attributes:
        shown: whether any row has been printed.
    """

    def __init__(self, job: Path, out: BinaryIO) -> None:
        self.shown = False
        self._directory = job / DIRECTORY
        self._out: BinaryIO | None = out
        self._freed: dict[Path, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="console", daemon=True)

    def start(self) -> None:
        """Start the thread that follows the files."""
        self._thread.start()

    def close(self) -> None:
        """Print the remaining rows, and end the thread."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _follow(self) -> None:
        try:
            news = False
            while not self._ended.wait(0 if news else LOOK_S):
                news = self.show()
            while self.show():
                pass  # continue until no rows are left to print
        except OSError as problem:
            print(f"causal: rows cannot be shown any more: {problem}; they are in the job directory", file=sys.stderr)

    def show(self) -> bool:
        """Print new rows, up to a limit per file; return whether there were any."""
        news = False
        for path in sorted(self._directory.glob("*.jsonl")):
            news = self._show(path) or news
        return news

    def _show(self, path: Path) -> bool:
        note = path.with_suffix(".shown")
        offset = int(note.read_text()) if note.exists() else 0
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < offset:
                print(f"causal: printed rows of {path.stem} were withdrawn; other rows replace them", file=sys.stderr)
                replace_text(note, str(size))
                self._freed[path] = min(size, self._freed.get(path, 0))
                return True
            file.seek(offset)
            data = file.read(CHUNK_BYTES_MAX)
            while data and b"\n" not in data and len(data) < size - offset:
                data += file.read(CHUNK_BYTES_MAX)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            self._free(path, offset, 1)
            return False
        self.shown = True
        self._put(whole)
        replace_text(note, str(offset + len(whole)))
        self._free(path, offset + len(whole), FREED_BYTES)
        return True

    def _put(self, rows: bytes) -> None:
        if self._out is None:
            return
        try:
            self._out.write(rows)
            self._out.flush()
        except OSError as problem:
            settle(self._out)
            if not isinstance(problem, BrokenPipeError):
                raise
            self._out = None
            print("causal: the printed rows are no longer read; further rows are dropped", file=sys.stderr)

    def _free(self, path: Path, shown: int, least: int) -> None:
        """Free the space of printed rows if the file system supports this.

        Otherwise, the sink reports when the rows use too much space.
        """
        if shown - self._freed.get(path, 0) >= least:
            self._freed[path] = shown
            with open(path, "r+b") as file:
                free(file.fileno(), shown)
