"""The signals of a worker: SIGTERM ends its loop immediately, and SIGINT is for `causal run` alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from causal.process.forks import let_children_end


class Termination:
    """Calls `stop` at SIGTERM, and makes `wake` readable: a poll that a signal interrupts would rest further."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

        def terminate(*_: object) -> None:
            stop()
            os.eventfd_write(self.wake, 1)

        signal.signal(signal.SIGTERM, terminate)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        let_children_end()

    def close(self) -> None:
        """Ignore what comes from now on: the process ends."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(self.wake)
