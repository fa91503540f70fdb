"""Determinants on simulated stable storage, and the thread of a process that writes them, in order.

A write that was asked for when its process dies may be there or not; a zombie keeps writing; a directory that a younger
incarnation has removed still accepts writes, and nothing reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from causal.effects import AppendStable, BeginStable, ReadStable, TruncateStable
from causal.errors import Unavailable
from causal.events import Event, StableFailed, StableRead, StableWritten
from causal.storage.stored_logs import StoredLogs
from operators.testing.stable_files import StableEffect
from tests.simulation.clockwork import MS
from tests.simulation.peers import Violated
from tests.simulation.shared_store import SimulatedUploads

if TYPE_CHECKING:
    from tests.simulation.process import Process

TRIES_MAX = 5


class StableShell:
    """The operations that one process has asked of its disk's thread, done one after the other."""

    def __init__(self, process: Process, answer: Callable[[Event], None], uploads: SimulatedUploads) -> None:
        self._process = process
        self._uploads = uploads
        self._stored: StoredLogs | None = None
        """The objects of the present incarnation, of a job of several hosts."""
        self._world = process.world
        self._answer = answer
        self._asked: deque[tuple[StableEffect, int, int]] = deque()
        self._tried = 0

    def ask(self, effect: StableEffect) -> None:
        task = self._process.task
        if task is None:
            raise Violated(f"stable: {self._process.slot} has no task")
        if self._world.several:
            self._ask_store(effect, task.name, task.incarnation)
            return
        self._asked.append((effect, task.holdings.task, task.incarnation))
        if len(self._asked) == 1:
            self._later()

    def finish(self) -> None:
        """The task restarts in this process: its thread ends behind what it was asked."""
        while self._asked:
            self._done(*self._asked.popleft())
        self._stored = None
        self._uploads.close()

    def _ask_store(self, effect: StableEffect, task: str, incarnation: int) -> None:
        """Make the shared store keep it, after the snapshots (`causal.storage.disk`)."""
        if self._stored is None:
            self._stored = StoredLogs(self._uploads.reached(), task, incarnation)
        stored = self._stored

        def perform() -> Event | None:
            if isinstance(effect, ReadStable):
                return StableRead(stored.read())
            if isinstance(effect, BeginStable):
                return StableWritten(stored.begin(effect.logs))
            if isinstance(effect, TruncateStable):
                stored.truncate(effect.epoch)
                return None
            try:
                return StableWritten(stored.append(effect.logs))
            except Unavailable:
                return StableFailed()

        def done(event: Event | None) -> None:
            if event is not None:
                self._answer(event)

        self._uploads.perform(perform, isinstance(effect, BeginStable | ReadStable), done)

    def _later(self, delay_ns: int = 0) -> None:
        slow = self._world.clock.now_ns < self._world.disk.slow_until_ns
        wait_ns = delay_ns or self._world.rng.randint(20_000, 200 * MS if slow else 3 * MS)
        asked = self._asked[0]
        self._world.clock.after(wait_ns, lambda: self._next(asked))

    def _next(self, asked: tuple[StableEffect, int, int]) -> None:
        if not self._asked or self._asked[0] is not asked:
            return
        effect, task, incarnation = asked
        if not self._process.living:
            self._asked.clear()
            if self._world.rng.random() < 0.5:  # death came after the write, not before
                self._done(effect, task, incarnation)
            return
        if self._world.clock.now_ns < self._world.disk.full_until_ns and isinstance(effect, BeginStable):
            self._tried += 1
            if self._tried == TRIES_MAX:
                self._process.fail(Unavailable("no space is left for determinants"))
                return
            self._later(200 * MS * self._tried)
            return
        self._asked.popleft()
        self._tried = 0
        event = self._done(effect, task, incarnation)
        if event is not None:
            self._answer(event)
        if self._asked:
            self._later()

    def _done(self, effect: StableEffect, task: int, incarnation: int) -> Event | None:
        full = self._world.clock.now_ns < self._world.disk.full_until_ns
        if full and isinstance(effect, AppendStable):
            return StableFailed()
        return self._world.stable.perform(effect, task, incarnation)
