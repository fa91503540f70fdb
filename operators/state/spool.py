"""A file for encoded fragments of state on disk, so that a snapshot of such state also needs little memory.

The task appends to the file, and the thread that writes the snapshot reads it. The file has no name once it is open,
and it disappears with its last reader or its process. Therefore, no process reads data that another process wrote.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from causal.errors import Unavailable
from operators.state.unnamed_files import numbered_file


class Spool:
    """A file to which bytes are appended; any thread can read them while this object is referenced."""

    def __init__(self, directory: str) -> None:
        """
        Args:
            directory: the directory of the file, which is created if it does not exist.

        Raises:
            Unavailable: no file can be created there.
        """
        self._directory = directory
        self._end = 0
        try:
            path = numbered_file(directory, "spool")
            self._file = open(path, "r+b", buffering=0)
            os.unlink(path)
        except OSError as problem:
            raise self._unavailable(problem) from problem

    def append(self, content: bytes) -> Spooled:
        """Append the bytes, and return their location.

        Raises:
            Unavailable: the disk is full or fails.
        """
        try:
            written = os.pwrite(self._file.fileno(), content, self._end)
        except OSError as problem:
            raise self._unavailable(problem) from problem
        if written < len(content):
            raise self._unavailable(OSError(f"only {written} of {len(content)} bytes were written"))
        spooled = Spooled(self, self._end, len(content))
        self._end += len(content)
        return spooled

    def read(self, place: int, size: int) -> bytes:
        """Return the `size` bytes at `place`.

        Raises:
            Unavailable: the disk fails.
        """
        try:
            content = os.pread(self._file.fileno(), size, place)
        except OSError as problem:
            raise self._unavailable(problem) from problem
        if len(content) < size:
            raise self._unavailable(OSError(f"only {len(content)} of {size} bytes were read"))
        return content

    def _unavailable(self, problem: OSError) -> Unavailable:
        what = problem.strerror or problem
        return Unavailable(f"a snapshot cannot be encoded in {self._directory}: {what}; free space there")


class Spooled(NamedTuple):
    """The location of bytes in a spool."""

    spool: Spool
    place: int
    size: int


Fragment = bytes | Spooled
"""A fragment of a snapshot, in memory or in a spool."""


def content_of(fragment: Fragment) -> bytes:
    """Return the bytes of a fragment.

    Raises:
        Unavailable: the disk fails.
    """
    return fragment if isinstance(fragment, bytes) else fragment.spool.read(fragment.place, fragment.size)
