"""The watch of a worker over the job's root process, `causal run`, without which no process of a job stays."""

from __future__ import annotations

import fcntl
from pathlib import Path

from causal.shell.clock import take_offset

CHECK_NS = 3_000_000_000
"""The interval at which the root process is looked for."""
GONE_AFTER_CHECKS = 3


class RootWatch:
    """Looks for the root process, which holds the lock of the job's directory as long as it lives."""

    def __init__(self, job_directory: Path) -> None:
        self._directory = job_directory
        self._due_ns = 0
        self._missing = 0

    def gone(self, now_ns: int) -> bool:
        """Whether it has been gone for a while; it looks now and then."""
        if now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + CHECK_NS
        take_offset(self._directory)
        try:
            with open(self._directory / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            self._missing = 0
            return False
        except FileNotFoundError:
            pass
        self._missing += 1
        return self._missing >= GONE_AFTER_CHECKS
