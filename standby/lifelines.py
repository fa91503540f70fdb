"""Waits for the deaths of the agent's workers, in a thread for each, and wakes the agent's loop.

A worker that is watched is told dead before the kernel has freed its memory (`causal.shell.lifeline`).
Everything else, also a worker that ends in good order or holds no lifeline, is told by its pidfd.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from causal.shell.lifeline import Watch, watch
from standby.children import Child
from standby.processes import has_ended

LOOK_NS = 60_000_000_000
"""How long after its start a process is looked at for a lifeline."""


class Lifelines:
    """The watches of one agent.

    Attributes:
        wake: a descriptor that is readable when `broken` has something to say.
    """

    def __init__(self) -> None:
        self.wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._watches: dict[str, tuple[Child, Watch]] = {}
        self._broken: queue.SimpleQueue[Child] = queue.SimpleQueue()

    def watch(self, living: Mapping[str, Child]) -> None:
        """Watch the workers among these that can be watched; those that live no longer are forgotten."""
        for slot, (child, found) in list(self._watches.items()):
            if living.get(slot) is not child:
                found.over = True
                del self._watches[slot]
        now_ns = time.monotonic_ns()
        for slot, child in living.items():
            if slot not in self._watches and not child.companion and now_ns - child.began_ns < LOOK_NS:
                self._begin(child)

    def _begin(self, child: Child) -> None:
        found = watch(child.pid)
        if found is None or has_ended(child.pidfd):  # if it has ended, its pid may be another's already
            return
        # A daemon: it sleeps in the kernel, and must not keep the agent from ending.
        waiter = threading.Thread(target=self._wait, args=(child, found), name=child.slot, daemon=True)
        try:
            waiter.start()
        except RuntimeError:
            return  # no more threads: its pidfd tells
        self._watches[child.slot] = child, found

    def _wait(self, child: Child, found: Watch) -> None:
        if found.wait() and not found.over:
            self._broken.put(child)
            with suppress(BlockingIOError):  # it is full of such news: the loop is awake anyhow
                os.write(self._waker, b"!")

    def broken(self) -> list[Child]:
        """The workers that died since the last call; one that was reaped meanwhile may be among them."""
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            return []
        died: list[Child] = []
        with suppress(queue.Empty):
            while True:
                died.append(self._broken.get_nowait())
        return died
