"""Determinants on simulated stable storage, and the thread of a process that writes them, in order.

A write that was asked for when its process dies may be there or not; a zombie keeps writing; a directory that a younger
incarnation has removed takes what is written into it, and nothing reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from causal.effects import AppendStable, BeginStable, ReadStable, TruncateStable
from causal.errors import Unavailable
from causal.events import Event, StableFailed, StableRead, StableWritten
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent
from tests.simulation.clockwork import MS
from tests.simulation.peers import Violated

if TYPE_CHECKING:
    from tests.simulation.process import Process

StableEffect = AppendStable | BeginStable | ReadStable | TruncateStable
TRIES_MAX = 5


class StableFiles:
    """The files of all tasks: (task, incarnation) → epoch → bytes."""

    def __init__(self) -> None:
        self.begun: dict[tuple[int, int], dict[int, bytes]] = {}

    def youngest(self, task: int, up_to: int) -> dict[int, bytes]:
        """Returns the logs that count for an incarnation: those of the youngest up to it."""
        incarnations = [incarnation for owner, incarnation in self.begun if owner == task and incarnation <= up_to]
        return self.begun[task, max(incarnations)] if incarnations else {}

    def begin(self, task: int, incarnation: int, logs: Sequence[LogDelta]) -> None:
        if (task, incarnation) in self.begun:
            raise Violated(f"stable: incarnation {incarnation} of task {task} begins its files a second time")
        if any(delta.offset for delta in logs):
            raise Violated(f"stable: incarnation {incarnation} of task {task} begins in the middle of its log")
        self.begun[task, incarnation] = {delta.epoch: delta.bytes for delta in logs}
        for older in [key for key in self.begun if key[0] == task and key[1] < incarnation]:
            del self.begun[older]

    def append(self, task: int, incarnation: int, logs: Sequence[LogDelta]) -> list[Extent]:
        files = self.begun.get((task, incarnation))
        for delta in logs if files is not None else ():
            content = files.get(delta.epoch, b"")  # type: ignore[union-attr]
            if delta.offset != len(content):
                raise Violated(f"stable: bytes from {delta.offset} are written behind {len(content)} of task {task}")
            files[delta.epoch] = content + delta.bytes  # type: ignore[index]
        return [(task, delta.epoch, delta.offset + len(delta.bytes)) for delta in logs]

    def truncate(self, task: int, incarnation: int, epoch: int) -> None:
        files = self.begun.get((task, incarnation), {})
        for old in [each for each in files if each < epoch]:
            del files[old]


class StableShell:
    """The operations that one process has asked of its disk's thread, done one after the other."""

    def __init__(self, process: Process, answer: Callable[[Event], None]) -> None:
        self._process = process
        self._world = process.world
        self._answer = answer
        self._asked: deque[tuple[StableEffect, int, int]] = deque()
        self._tried = 0

    def ask(self, effect: StableEffect) -> None:
        task = self._process.task
        if task is None:
            raise Violated(f"stable: {self._process.slot} has no task")
        self._asked.append((effect, task.holdings.task, task.incarnation))
        if len(self._asked) == 1:
            self._later()

    def finish(self) -> None:
        """The task restarts in this process: its thread ends behind what it was asked."""
        while self._asked:
            self._done(*self._asked.popleft())

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
            if self._world.rng.random() < 0.5:  # death came behind the write, not before
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
        files = self._world.stable
        if isinstance(effect, ReadStable):
            read = files.youngest(task, incarnation)
            return StableRead([LogDelta(task, epoch, 0, log) for epoch, log in sorted(read.items())])
        if isinstance(effect, BeginStable):
            files.begin(task, incarnation, effect.logs)
            return StableWritten([(task, delta.epoch, len(delta.bytes)) for delta in effect.logs])
        if isinstance(effect, TruncateStable):
            files.truncate(task, incarnation, effect.epoch)
            return None
        if self._world.clock.now_ns < self._world.disk.full_until_ns:
            return StableFailed()
        return StableWritten(files.append(task, incarnation, effect.logs))
