"""An exclusive lock between processes on one host, by flock."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path


class FileLock:
    """An exclusive lock between processes; it ends with the process that holds it, and waits no longer than told."""

    __slots__ = ("path", "_descriptor")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def acquire(self, wait_ms: int) -> bool:
        """False if somebody else held it all the time."""
        slept_s, pause_s = 0.0, 0.001
        while not self._try():
            if slept_s * 1000 >= wait_ms:
                return False
            time.sleep(pause_s)
            slept_s, pause_s = slept_s + pause_s, min(pause_s * 2, 0.02)
        return True

    def _try(self) -> bool:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # Whoever deleted the file made room for a second lock of the same name: only the one that is there counts.
        try:
            there = os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except FileNotFoundError:
            there = False
        if not there:
            self.close()
            return self._try()
        return True

    def release(self) -> None:
        """Let others have it."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release it and let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
