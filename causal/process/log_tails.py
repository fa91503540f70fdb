"""Follows the logs in a directory and merges new lines of all processes by time, even when a full file is rotated.

Each process has its own file (`causal.process.processlog`), and the lines of one file stay in order.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from causal.process.processlog import parsed

READ_BYTES_MAX = 1 << 20
LINE_BYTES_MAX = 1 << 18
"""The length from which output of native code without a newline is treated as a line."""

Placed = tuple[str, str, str]
"""(time, label, line); a line of native code has no time, so it uses the time and label of the preceding line."""


@dataclass(slots=True)
class Tail:
    """One file, which is read from the offset at which the last read ended.

    Attributes:
        time: the time of the last line that had a time.
        label: the label of the last line that had a time.
        skipped: the number of bytes that were skipped because they were written too fast.
    """

    path: Path
    offset: int = 0
    inode: int = 0
    rest: bytes = b""
    time: str = ""
    label: str = field(init=False)
    skipped: int = 0

    def __post_init__(self) -> None:
        self.label = self.path.name.partition(".log")[0].removeprefix("companion-")

    def lines(self, bytes_max: int | None = None) -> Iterator[Placed]:
        """Yield each complete new line.

        Args:
            bytes_max: the number of new bytes above which only the last `bytes_max` bytes are read.
        """
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                self.inode = status.st_ino
                if bytes_max is not None and status.st_size - self.offset > bytes_max:
                    self._skip_to(status.st_size - bytes_max)
                file.seek(self.offset)
                while data := file.read(READ_BYTES_MAX if bytes_max is None else bytes_max):
                    self.offset += len(data)
                    *whole, self.rest = (self.rest + data).split(b"\n")
                    for line in whole:
                        yield self._placed(line.decode(errors="replace"))
                    if len(self.rest) > LINE_BYTES_MAX:
                        line, self.rest = self.rest, b""
                        yield self._placed(line.decode(errors="replace"))
                    if bytes_max is not None:
                        return
        except FileNotFoundError:
            return

    def _skip_to(self, offset: int) -> None:
        self.skipped += offset - self.offset + len(self.rest)
        self.offset, self.rest = offset, b"(the beginning of this line was left out) "

    def _placed(self, line: str) -> Placed:
        at, label, _ = parsed(line)
        if at:
            self.time, self.label = at, label
        return self.time, self.label, line


class LogTails:
    """The logs in one directory, including files that are created later.

    Args:
        begun: name → the (inode, offset) up to which the previous follower has read.
    """

    def __init__(self, directory: Path, begun: dict[str, tuple[int, int]] | None = None) -> None:
        self._directory = directory
        self._tails: dict[Path, Tail] = {}
        for name, (inode, offset) in (begun or {}).items():
            path = directory / name
            if inode and _inode(path) == inode:
                self._tails[path] = Tail(path, offset, inode)

    def new(self) -> Iterator[tuple[Path, Placed]]:
        """Return (file, line) of each new line, ordered by time."""
        self._look()
        return heapq.merge(*(_with_path(tail, None) for tail in self._tails.values()), key=lambda each: each[1][0])

    def newest(self, bytes_max: int) -> list[tuple[Path, Placed]]:
        """Return the same for the last `bytes_max` bytes only, divided among the files that have grown."""
        self._look()
        grown = [tail for tail in self._tails.values() if _size(tail.path) > tail.offset]
        each_max = max(1, bytes_max // max(1, len(grown)))
        return list(heapq.merge(*(_with_path(tail, each_max) for tail in grown), key=lambda each: each[1][0]))

    def skipped(self) -> dict[str, int]:
        """Return file name → the number of bytes that were skipped since the last call."""
        counts = {tail.path.name: tail.skipped for tail in self._tails.values() if tail.skipped}
        for tail in self._tails.values():
            tail.skipped = 0
        return counts

    def read_up_to(self) -> dict[str, tuple[int, int]]:
        """Return file name → the (inode, offset) up to which complete lines were read, for the next follower."""
        return {tail.path.name: (tail.inode, tail.offset - len(tail.rest)) for tail in self._tails.values()}

    def _look(self) -> None:
        """Detect files that are new, were emptied because they were full, or were removed."""
        for path in [path for path in self._tails if not path.exists()]:
            del self._tails[path]
        for path in sorted(self._directory.glob("*.log")):
            tail = self._tails.get(path)
            if tail is None:
                older = path.with_name(path.name + ".1")
                if older.exists() and older not in self._tails:
                    self._tails[older] = Tail(older)
                self._tails[path] = Tail(path)
            elif tail.inode and (_inode(path) not in (tail.inode, 0) or _size(path) < tail.offset):
                older = path.with_name(path.name + ".1")
                self._tails[older] = Tail(older, tail.offset, rest=tail.rest, time=tail.time)
                self._tails[path] = Tail(path)


def _with_path(tail: Tail, bytes_max: int | None) -> Iterator[tuple[Path, Placed]]:
    return ((tail.path, placed) for placed in tail.lines(bytes_max))


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
