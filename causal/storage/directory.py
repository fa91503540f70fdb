"""Objects in a directory on one machine, stored as files that are linked to their names once complete (D17, D21).

Linking fails if the name exists, so exactly one of several creators succeeds. A name that begins with a dot belongs to
a file whose creation is in progress or was interrupted.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from causal.errors import CorruptData
from causal.storage.files import make_directory, sync_directory
from causal.storage.lock import locked_once, outside, unavailable
from causal.storage.objects import OBJECT_BYTES_MAX, Missing, Objects

LOCK = ".lock"
LOCK_WAIT_MS = 30_000
"""The maximum wait for the lock before an error is raised; the lock is only held for a few file operations."""

_log = logging.getLogger("causal.directory")


class Directory(Objects):
    """One job's objects in a directory on this machine; any number of processes may use it at the same time.

    Args:
        path: the directory, which must exist; if it is missing, it is never created again, because it would be empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = str(path)

    def where(self, name: str) -> str:
        """Return the path of an object or folder."""
        return str(self.path / name)

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        """Create a file with all of its content; return whether it is new."""
        path = self.path / name
        unlinked = path.with_name(f".{path.name}.{threading.get_native_id()}")
        with outside(path):
            self._make(path.parent, durable)
            try:
                _write(unlinked, data, durable)
                os.link(unlinked, path)
            except FileExistsError:
                return False
            finally:
                unlinked.unlink(missing_ok=True)
            if durable:
                sync_directory(path.parent)
        return True

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            Missing: the file does not exist.
            CorruptData: the file is larger than any object that this class creates.
        """
        path = self.path / name
        try:
            with open(path, "rb", buffering=0) as file:
                if (size := os.fstat(file.fileno()).st_size) > OBJECT_BYTES_MAX:
                    raise CorruptData(
                        f"{path} has {size:,} bytes, but at most {OBJECT_BYTES_MAX:,} are read; another "
                        "program wrote it"
                    )
                return file.readall()
        except FileNotFoundError:
            raise Missing(f"{path} is missing; restore it from a copy") from None
        except OSError as problem:
            raise unavailable(path, problem) from problem

    def sizes(self, folder: str, after: str = "") -> dict[str, int]:
        """Return the size in bytes of each file below a folder, by name; `after` is as in `Objects.sizes`."""
        with outside(self.path / folder):
            return dict(self._sizes(folder, after))

    def _sizes(self, folder: str, after: str = "") -> Iterator[tuple[str, int]]:
        place = os.path.join(self.path, folder)
        try:
            entries = [each for each in os.listdir(place) if each > after and not each.startswith(".")]
        except FileNotFoundError:
            return
        for entry in entries:
            name = f"{folder}/{entry}" if folder else entry
            with suppress(FileNotFoundError):  # the file has just been removed
                status = os.lstat(f"{place}/{entry}")
                if stat.S_ISDIR(status.st_mode):
                    yield from self._sizes(name)
                else:
                    yield name, status.st_size

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; a file that cannot be removed only takes up space."""
        for name in names:
            _remove(self.path / name)

    @contextmanager
    def exclusive(self, folder: str) -> Iterator[bool]:
        """Hold the lock of a folder; the lock is released if the process that holds it dies.

        Raises:
            Unavailable: another process held the lock throughout the wait.
        """
        place = self.path / folder
        with outside(place):
            self._make(place, durable=True)
        with locked_once(place / LOCK, LOCK_WAIT_MS, place):
            yield True

    def remove_unfinished(self, folder: str) -> None:
        """Remove the files below a folder that were never linked to a name."""
        for place, _, files in os.walk(self.path / folder):
            for file in files:
                if file.startswith(".") and file != LOCK:
                    _remove(Path(place, file))

    def _make(self, folder: Path, durable: bool) -> None:
        """Create a folder in the directory; raise an error if the directory itself is missing."""
        if not folder.is_dir():
            os.stat(self.path)
            make_directory(folder, durable)


def _write(path: Path, data: bytes | memoryview, durable: bool) -> None:
    with open(path, "wb", buffering=0) as file:
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]
        if durable:
            os.fsync(file.fileno())


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        _log.warning("%s cannot be removed: %s", path, problem.strerror)
