"""The permissions of files that a job writes: its directory is private to the user, and output has the user's umask.

The processes of a job have umask 0077, which is set once at the start and inherited by every child process, so no other
user can read files that a library creates in the directory of the job. The user's original umask is stored in the
environment; it determines the mode of files and directories created for the user (rows of a sink, a report).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UMASK = "CAUSAL_UMASK"
"""The umask of the user, in octal digits, in the environment of the processes of a job."""
PRIVATE = 0o077


@contextmanager
def private() -> Iterator[None]:
    """Make all files that this process and its children write inside the context readable by the user only."""
    known = UMASK in os.environ
    before = os.umask(PRIVATE)
    os.environ.setdefault(UMASK, f"{before:03o}")
    try:
        yield
    finally:
        os.umask(before)
        if not known:
            os.environ.pop(UMASK, None)


def _umask() -> int:
    """Return the umask of the user."""
    digits = os.environ.get(UMASK, "")
    if digits:
        return int(digits, 8) & 0o777
    now = os.umask(PRIVATE)
    os.umask(now)
    return now


@contextmanager
def public() -> Iterator[None]:
    """Set the umask of the user, for code of the user that makes files of its own."""
    before = os.umask(_umask())
    try:
        yield
    finally:
        os.umask(before)


def mode_of_files(private: bool = False) -> int:
    """Return the mode of a file that is made for the user, or for the job alone."""
    return 0o600 if private else 0o666 & ~_umask()


def mode_of_directories(private: bool = False) -> int:
    """Return the mode of a directory that is made for the user, or for the job alone."""
    return 0o700 if private else 0o777 & ~_umask()


def opened(path: Path, flags: int, mode: int) -> int:
    """Open a file like `os.open`; create it with exactly `mode` if it does not exist."""
    while True:
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        except FileExistsError:
            try:
                return os.open(path, flags | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
        os.fchmod(descriptor, mode)
        return descriptor


def ensure_directory(directory: Path, mode: int) -> None:
    """Create a directory with exactly `mode` if it does not exist; its parent must exist."""
    try:
        directory.mkdir()
    except FileExistsError:
        if not directory.is_dir():
            raise
        return
    directory.chmod(mode)


def closed_to_others(path: Path) -> None:
    """Remove the permissions of other users that an earlier version set, in a file or a whole directory."""
    if path.is_symlink() or not path.exists() or not stat.S_IMODE(path.stat().st_mode) & PRIVATE:
        return
    for each in (*(path.rglob("*") if path.is_dir() else ()), path):
        if not each.is_symlink():
            each.chmod(stat.S_IMODE(each.stat().st_mode) & ~PRIVATE)
