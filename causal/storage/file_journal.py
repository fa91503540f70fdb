"""The journal of one sink task: a file to which the task's processes append, each while it holds a lock.

After any error between two steps, the journal is read into memory again before the next step. A newer process replaces
the journal with its own, or appends its claim. The previous owner detects this while it holds the lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from causal.errors import RowRefused, Unavailable, fenced
from causal.storage.files import sync_directory
from causal.storage.framing import HEAD_BYTES, bodies, framed, replace_file, write_whole
from causal.storage.lock import FileLock, busy, is_at, unavailable

JOURNAL_BYTES_MAX = 8 << 20
"""The size above which a journal is rewritten, if it has also grown to more than twice its initial size."""


class FileJournal:
    """The journal file, its lock and its valid length; used by one thread at a time.

    Args:
        lock: the path of the lock that every process acquires before it uses the file.
        place: the user-visible location of the store, for error messages.
        wait_ms: the maximum wait for the lock.
        sync: whether appended records must be on disk before the next step.
        mode: the mode of the files.

    State: `forget` is called after any error except a refused row, because the data in memory may no longer be valid.
    """

    def __init__(
        self, task: str, path: Path, lock: Path, place: Path, wait_ms: int, sync: bool, mode: int = 0o600
    ) -> None:
        self.path = path
        self.sync = sync
        self.forget: Callable[[], None] = _nothing
        self._task = task
        self._place = place
        self._wait_ms = wait_ms
        self._lock = FileLock(lock, mode)
        self._mode = mode
        self._file = -1
        self._bytes = self._bytes_new = 0

    @property
    def where(self) -> Path:
        """The journal's path, as shown in errors."""
        return self.path

    def prepare(self) -> None:
        """Create the directory, whose parent must exist."""
        directory = self.path.parent
        directory.mkdir(exist_ok=True)
        if self.sync:
            # Sync even if the directory exists, because its creator may have died before syncing the parent.
            sync_directory(directory.parent)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock inside the context.

        Raises:
            Unavailable: another process held the lock throughout the wait, or the disk failed.
        """
        with self.guarded():
            if not self._lock.acquire(self._wait_ms):
                raise busy(self._place)
            try:
                yield
            finally:
                self._lock.release()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Discard the data in memory after any error except a refused row; raise disk errors as `Unavailable`."""
        try:
            yield
        except RowRefused:
            raise  # a row is refused before anything is changed
        except OSError as problem:
            self.forget()
            raise unavailable(self._place, problem) from problem
        except BaseException:
            self.forget()
            raise

    def is_ours(self, incarnation: int) -> bool:
        """Return whether the open file is still the journal and contains only what this process has read or written.

        Raises:
            Unavailable: no journal is open.
            Fenced: the journal file no longer exists.
        """
        if self._file < 0:
            raise Unavailable(f"the store of sink task {self._task} is not open; open it first")
        if is_at(self.path, self._file):
            return os.fstat(self._file).st_size == self._bytes
        if not self.path.exists():
            raise fenced(self._task, incarnation)
        return False

    @property
    def is_there(self) -> bool:
        """Whether a journal exists, regardless of which process created it."""
        return self.path.exists()

    @property
    def has_grown(self) -> bool:
        """Whether the journal contains anything after its first record."""
        return self._bytes > self._bytes_new

    def is_due(self, spare: int = 0) -> bool:
        """Return whether the journal should be rewritten; `spare` is the number of bytes that a rewrite would keep."""
        return self._bytes > max(JOURNAL_BYTES_MAX, 2 * self._bytes_new) + spare

    def read(self) -> list[bytes]:
        """Return the records in the current file; call `cut` to remove a torn end before anything is appended."""
        self._let_go()
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        records, self._bytes = bodies(self.path.read_bytes(), self.path)
        self._bytes_new = HEAD_BYTES + len(records[0]) if records else 0
        return records

    def seize(self) -> bool:
        """Do nothing, because no other process can append to the journal while this process holds the lock."""
        return True

    def cut(self) -> None:
        """Remove the torn end that a writer left when it died."""
        os.ftruncate(self._file, self._bytes)

    def append(self, body: bytes, lasting: bool = True) -> None:
        """Add a record in one write; a record that is not `lasting` may be lost in a power failure."""
        record = framed(body)
        write_whole(self._file, record)
        if self.sync and lasting:
            os.fdatasync(self._file)
        self._bytes += len(record)

    def renew(self, body: bytes) -> None:
        """Replace the journal with one that contains only this record."""
        record = framed(body)
        fresh = replace_file(self.path, record, self.sync, self._mode)
        self._let_go()
        self._file = fresh
        self._bytes = self._bytes_new = len(record)

    def close(self) -> None:
        """Close the file and its lock."""
        self._lock.close()
        self._let_go()

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def _nothing() -> None:
    """Do nothing."""
