"""What sinks for people have written, on the standard output of `causal run`, while the job goes on.

A thread follows the files, so that whoever reads slowly holds up nothing but what is shown.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import BinaryIO

from operators.sinks.console import CONSOLE

LOOK_S = 0.1
CHUNK_BYTES_MAX = 1 << 20


class Console:
    """Shows each row once; how far it has come is kept in the directory of the job, for the next `causal run`.

    Args:
        out: where rows go, as bytes.

    State: `shown` is whether there was anything to show.
    """

    def __init__(self, job: Path, out: BinaryIO) -> None:
        self.shown = False
        self._directory = job / CONSOLE
        self._out = out
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="console", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def close(self) -> None:
        """Show what is left, then let go."""
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        try:
            while not self._ended.wait(LOOK_S):
                self.show()
            while self.show():
                pass  # until nothing is left
        except BrokenPipeError:
            print("causal: nobody reads the rows any more; they are in the job's directory", file=sys.stderr)
        except OSError as problem:
            print(f"causal: rows cannot be shown any more: {problem}; they are in the job's directory", file=sys.stderr)

    def show(self) -> bool:
        """Show what is new, up to a bound for each file; whether there was anything."""
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
                print(f"causal: rows shown of {path.stem} were withdrawn; others come in their place", file=sys.stderr)
                _replace(note, size)
                return True
            file.seek(offset)
            found = file.read(CHUNK_BYTES_MAX)
            while found and b"\n" not in found and len(found) < size - offset:
                found += file.read(CHUNK_BYTES_MAX)
        whole = found[: found.rfind(b"\n") + 1]
        if not whole:
            return False
        self.shown = True
        self._out.write(whole)
        self._out.flush()
        _replace(note, offset + len(whole))
        return True


def _replace(note: Path, offset: int) -> None:
    fresh = note.with_suffix(".new")
    fresh.write_text(str(offset))
    fresh.replace(note)
