"""Waits for the deaths of the agent's workers on one thread per worker, and wakes the agent's loop.

The death of a watched worker is reported before the kernel has freed its memory (`causal.process.lifeline`). The pidfd
reports all other ends: those of companions, and of workers that exit normally or have no lifeline.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from causal.process.lifeline import Watch, watch
from standby.host.children import Child
from standby.host.processes import has_ended

LOOK_NS = 60_000_000_000
"""The time after its start during which a process is checked for a lifeline."""


class Lifelines:
    """The lifeline watches of one agent.

    Attributes:
        wake: a descriptor that is readable when `broken` would return a worker.
    """

    def __init__(self) -> None:
        self.wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._watches: dict[str, tuple[Child, Watch]] = {}
        self._broken: queue.SimpleQueue[Child] = queue.SimpleQueue()

    def watch(self, living: Mapping[str, Child]) -> None:
        """Watch the workers that have a lifeline, and stop watching those that have ended."""
        for slot, (child, lifeline) in list(self._watches.items()):
            if living.get(slot) is not child:
                lifeline.over = True
                del self._watches[slot]
        now_ns = time.monotonic_ns()
        for slot, child in living.items():
            if slot not in self._watches and not child.companion and now_ns - child.began_ns < LOOK_NS:
                self._begin(child)

    def _begin(self, child: Child) -> None:
        lifeline = watch(child.pid)
        # If the process has ended, its pid may already belong to a different process.
        if lifeline is None or has_ended(child.pidfd):
            return
        # The thread is a daemon, because it sleeps in the kernel and must not prevent the agent from ending.
        waiter = threading.Thread(target=self._wait, args=(child, lifeline), name=child.slot, daemon=True)
        try:
            waiter.start()
        except RuntimeError:
            return  # no more threads can be started, but the pidfd will report the end of the process
        self._watches[child.slot] = child, lifeline

    def _wait(self, child: Child, lifeline: Watch) -> None:
        if lifeline.wait() and not lifeline.over:
            self._broken.put(child)
            with suppress(BlockingIOError):  # if the pipe is full, the loop has been woken already
                os.write(self._waker, b"!")

    def broken(self) -> list[Child]:
        """Return the workers that have died since the last call; some of them may already have been reaped."""
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            return []
        died: list[Child] = []
        with suppress(queue.Empty):
            while True:
                died.append(self._broken.get_nowait())
        return died
