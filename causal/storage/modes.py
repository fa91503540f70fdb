"""The permissions of files that a job writes: its directory is private to the user, and output has the user's umask.

The processes of a job have the umask 0077. It is set once at the start and inherited by every child process, so no
other user can read files that a library creates in the job directory. The user's original umask is stored in the
environment. It determines the mode of files and directories created for the user, such as a sink's rows or a report.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UMASK = "CAUSAL_UMASK"
"""The environment variable with the user's umask in octal digits, for the processes of a job."""
PRIVATE = 0o077


@contextmanager
def private() -> Iterator[None]:
    """Make all files that this process and its children create inside the context readable only by the user."""
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
    """Return the user's umask."""
    digits = os.environ.get(UMASK, "")
    if digits:
        return int(digits, 8) & 0o777
    now = os.umask(PRIVATE)
    os.umask(now)
    return now


@contextmanager
def public() -> Iterator[None]:
    """Set the user's umask inside the context, for user code that creates its own files."""
    before = os.umask(_umask())
    try:
        yield
    finally:
        os.umask(before)


def mode_of_files(private: bool = False) -> int:
    """Return the mode for a file that is created for the user or, if `private` is set, for the job alone."""
    return 0o600 if private else 0o666 & ~_umask()


def mode_of_directories(private: bool = False) -> int:
    """Return the mode for a directory that is created for the user or, if `private` is set, for the job alone."""
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
    """Remove permissions for other users that an earlier version set on a file or an entire directory."""
    if path.is_symlink() or not path.exists() or not stat.S_IMODE(path.stat().st_mode) & PRIVATE:
        return
    for each in (*(path.rglob("*") if path.is_dir() else ()), path):
        if not each.is_symlink():
            each.chmod(stat.S_IMODE(each.stat().st_mode) & ~PRIVATE)
