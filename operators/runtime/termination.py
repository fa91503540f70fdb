"""The signals that a worker handles: SIGTERM ends its loop immediately, and only `causal run` handles SIGINT."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress

from causal.process.forks import let_children_end
from causal.process.signal_wake import woken_by_signals


class Termination:
    """Calls `stop` at SIGTERM, and makes `wake` readable, because an interrupted poll would otherwise keep waiting.

    A handler in Python runs only once the main thread is back in the interpreter, so a signal that arrives just before
    a poll would be noticed only when the poll ends. Therefore the interpreter itself writes to `wake` when a signal
    arrives.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._open = ExitStack()
        self._woken = self._open.enter_context(woken_by_signals())
        self.wake = self._woken.fileno()
        signal.signal(signal.SIGTERM, lambda number, frame: stop())
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
        self._open.close()
