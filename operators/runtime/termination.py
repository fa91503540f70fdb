"""The signals that a worker handles: SIGTERM ends its loop immediately, and only `causal run` handles SIGINT."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from causal.process.forks import let_children_end


class Termination:
    """Calls `stop` at SIGTERM, and makes `wake` readable, because an interrupted poll would otherwise keep waiting."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

        def terminate(*_: object) -> None:
            stop()
            os.eventfd_write(self.wake, 1)

        signal.signal(signal.SIGTERM, terminate)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        let_children_end()

    def close(self) -> None:
        """Ignore later signals, because the process is ending."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(self.wake)
