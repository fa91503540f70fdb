"""Who may read what a job writes: its directory is its user's alone, what the user reads has the user's own umask.

A process of a job has umask 0077, set once where it begins and inherited by every process that it starts, so whatever
is made in the directory of the job, by whichever library, can be read by nobody else.  The umask that the user had is
in the environment; files and directories that are made for the user (rows of a sink, a report) are given their mode
by it.
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


def be_private() -> None:
    """Let only the user read what this process, and those that it starts, make from now on."""
    before = os.umask(PRIVATE)
    os.environ.setdefault(UMASK, f"{before:03o}")


@contextmanager
def private() -> Iterator[None]:
    """The same for a while."""
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
    """The umask of the user."""
    told = os.environ.get(UMASK, "")
    if told:
        return int(told, 8) & 0o777
    now = os.umask(PRIVATE)
    os.umask(now)
    return now


@contextmanager
def public() -> Iterator[None]:
    """The umask of the user, for code of the user that makes files of its own."""
    before = os.umask(_umask())
    try:
        yield
    finally:
        os.umask(before)


def mode_of_files(private: bool = False) -> int:
    """The mode of a file that is made for the user, or for the job alone."""
    return 0o600 if private else 0o666 & ~_umask()


def mode_of_directories(private: bool = False) -> int:
    """The mode of a directory that is made for the user, or for the job alone."""
    return 0o700 if private else 0o777 & ~_umask()


def opened(path: Path, flags: int, mode: int) -> int:
    """`os.open`, which makes the file with exactly that mode if it is not there."""
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


def made(directory: Path, mode: int) -> None:
    """Make a directory with exactly that mode if it is not there; the one above it is."""
    try:
        directory.mkdir()
    except FileExistsError:
        if not directory.is_dir():
            raise
        return
    directory.chmod(mode)


def closed_to_others(path: Path) -> None:
    """Take away from all others what an earlier version let them read, in a file or a whole directory."""
    if path.is_symlink() or not path.exists() or not stat.S_IMODE(path.stat().st_mode) & PRIVATE:
        return
    for each in (*(path.rglob("*") if path.is_dir() else ()), path):
        if not each.is_symlink():
            each.chmod(stat.S_IMODE(each.stat().st_mode) & ~PRIVATE)
