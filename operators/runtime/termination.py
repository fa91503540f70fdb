"""The signals that a worker handles: SIGTERM ends its loop immediately, and only `causal run` handles SIGINT."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from contextlib import suppress

from causal.process.forks import let_children_end


class Termination:
    """Calls `stop` at SIGTERM, and makes `wake` readable, because an interrupted poll would otherwise keep waiting.

    A handler in Python runs only once the main thread is back in the interpreter, so a signal that arrives just before
    a poll would be noticed only when the poll ends. Therefore the interpreter itself writes to `wake` when a signal
    arrives.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self.wake = self._woken.fileno()
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)

        def terminate(*_: object) -> None:
            stop()
            with suppress(OSError):  # user code may have made signals wake something else
                self._waker.send(b"\0")

        signal.signal(signal.SIGTERM, terminate)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        let_children_end()

    def drain(self) -> None:
        """Make `wake` unreadable again; signals that user code handles make it readable, too."""
        with suppress(BlockingIOError):
            while self._woken.recv(4096):
                continue

    def close(self) -> None:
        """Ignore later signals, because the process is ending."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        self._woken.close()
        self._waker.close()
