"""An exclusive lock between processes on one host, by flock, and checks of open files that stores share."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from causal.errors import Unavailable
from causal.process.forks import close, keep_from_children
from causal.storage.modes import opened


class FileLock:
    """An exclusive lock between processes; it is released if its holder dies, and every wait is limited.

    A forked child does not hold its parent's lock and cannot release it.
    """

    __slots__ = ("path", "_descriptor", "_mode", "_process")

    def __init__(self, path: Path, mode: int = 0o600) -> None:
        self.path = path
        self._descriptor = -1
        self._mode = mode
        self._process = os.getpid()

    def acquire(self, wait_ms: int) -> bool:
        """Acquire the lock; return false if another process held it throughout the wait."""
        slept_s, pause_s = 0.0, 0.001
        while not self._try():
            if slept_s * 1000 >= wait_ms:
                return False
            time.sleep(pause_s)
            slept_s, pause_s = slept_s + pause_s, min(pause_s * 2, 0.02)
        return True

    def _try(self) -> bool:
        self._forget_parent()
        if self._descriptor < 0:
            self._descriptor = keep_from_children(opened(self.path, os.O_RDWR, self._mode))
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # If this file was deleted, another process may have locked a new file with the same name. Only a lock on the
        # file that now has the name counts.
        if not is_at(self.path, self._descriptor):
            self.close()
            return self._try()
        return True

    @contextmanager
    def locked(self, wait_ms: int, place: Path) -> Iterator[None]:
        """Hold the lock inside the context.

        Raises:
            Unavailable: the lock was held by another process throughout the wait or cannot be created; names the place.
        """
        with outside(place):
            acquired = self.acquire(wait_ms)
        if not acquired:
            raise busy(place)
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Release the lock but keep the file open."""
        self._forget_parent()
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release the lock and close the file."""
        self._forget_parent()
        if self._descriptor >= 0:
            close(self._descriptor)
            self._descriptor = -1

    def _forget_parent(self) -> None:
        """Forget the parent's descriptor in a forked child: it is closed, and its number may now be another file's."""
        if self._process != os.getpid():
            self._process, self._descriptor = os.getpid(), -1


@contextmanager
def locked_once(path: Path, wait_ms: int, place: Path, mode: int = 0o600) -> Iterator[None]:
    """Hold a lock that is not needed again; the errors are those of `FileLock.locked`."""
    lock = FileLock(path, mode)
    try:
        with lock.locked(wait_ms, place):
            yield
    finally:
        lock.close()


@contextmanager
def outside(place: object) -> Iterator[None]:
    """Convert an `OSError` raised inside to `Unavailable`, which names the place and means that a retry may succeed."""
    try:
        yield
    except OSError as problem:
        raise unavailable(place, problem) from problem


def unavailable(place: object, problem: OSError) -> Unavailable:
    """Return the error for a place at which a retry may succeed."""
    return Unavailable(f"{place}: {problem.strerror or problem}; check the disk, its space and the directory")


def moved(place: object) -> Unavailable:
    """Return the error for a place whose content was replaced or removed."""
    return Unavailable(f"{place} was moved, replaced or deleted while the job was running; put it back")


def absent(place: object, journal: object = None) -> Unavailable:
    """Return the error for a place, or a journal of rows, that existed at a checkpoint and is now missing."""
    if isinstance(place, Path) and _shows_rows(place):
        return Unavailable(
            f"{journal}, which belongs to {place}, is missing although the checkpoint counts its rows: put the "
            "journal back (a copy must include the hidden files), or start the job without --resume"
        )
    return Unavailable(
        f"{place} is missing but existed when the checkpoint was taken: put it back (a relative path is resolved "
        "from the current directory), or start the job without --resume"
    )


def _shows_rows(place: Path) -> bool:
    """Return whether the place is an existing file, or a directory with files that readers of rows do not skip."""
    return any(each.name[0] not in "._" for each in place.iterdir()) if place.is_dir() else place.exists()


def busy(place: object) -> Unavailable:
    """Return the error for a place whose lock another process held throughout the wait."""
    return Unavailable(f"{place} has been locked by another process for too long; stop that process")


def is_at(path: Path, descriptor: int) -> bool:
    """Return whether the open file is still the file with that name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
