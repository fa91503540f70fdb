"""A child process that another process has forked for this one."""

from __future__ import annotations

import os
import signal


class Forked:
    """A forked child process with those methods of `subprocess.Popen` that are needed here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status; None while the process is running."""
        return self._waited(os.WNOHANG)

    def wait(self) -> int | None:
        """Wait for the process to end and return its exit status."""
        return self._waited(0)

    def kill(self) -> None:
        """Send SIGKILL, unless the process has already been reaped."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _waited(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # the process has already been reaped together with other processes
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode
