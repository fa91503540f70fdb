"""A disk that is small enough to be filled: a tmpfs of a few megabytes, where this machine permits mounting one."""

from __future__ import annotations

import errno
import os
import subprocess
from io import FileIO
from pathlib import Path

PIECE_BYTES = 1 << 16


class SmallDisk:
    """A tmpfs at `path` until `close`; `fill` leaves not a byte on it, `make_room` gives back what `fill` took.

    What fills it is an open file, which takes its room also when the directory is emptied.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        """Mount it.

        Raises:
            PermissionError: this machine does not permit it.
        """
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        error = _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0755", "torture", str(path))
        if error is not None:
            raise PermissionError(errno.EPERM, f"no small disk can be mounted here: {error}")
        self._ballast: FileIO | None = None

    def fill(self) -> None:
        """Take all that is free; whatever grows from now on finds no space."""
        if self._ballast is None:
            self._ballast = open(self.path / "ballast", "ab", buffering=0)
        size = PIECE_BYTES
        while size:
            try:
                self._ballast.write(b"\0" * size)
            except OSError as problem:
                if problem.errno != errno.ENOSPC:
                    raise
                size //= 2

    def make_room(self) -> None:
        """Free the space."""
        if self._ballast is not None:
            self._ballast.truncate(0)
            self._ballast.close()
            self._ballast = None
        (self.path / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount; what was on it is gone."""
        self.make_room()
        if os.path.ismount(self.path):
            error = _run("umount", str(self.path))
            if error is not None:
                _run("umount", "--lazy", str(self.path))


def permitted(path: Path) -> bool:
    """Return whether a small disk can be mounted below `path`."""
    try:
        SmallDisk(path / "probe", PIECE_BYTES).close()
    except PermissionError:
        return False
    return True


def _run(*command: str) -> str | None:
    """Run a command; returns what went wrong, None if nothing did."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as problem:
        return str(problem)
    return done.stderr.strip() or f"status {done.returncode}" if done.returncode else None
