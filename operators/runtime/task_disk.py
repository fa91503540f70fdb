"""The disk of a hot standby or a task: it is opened with the state of the process and closed with it."""

from __future__ import annotations

import select
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from causal.config import JobConfig
from causal.effects import Effect
from causal.errors import invariant
from causal.events import Event
from causal.storage.disk import Disk
from causal.storage.shared import Depot

MERGER = "operators.runtime.merge_process"
"""The module of the process that merges snapshots."""


class Poller(Protocol):
    """The poller with which a process's loop waits."""

    def register(self, descriptor: Any, flags: int, /) -> None: ...

    def unregister(self, descriptor: Any, /) -> None: ...


class TaskDisk:
    """The only disk of a process, which the process's loop polls.

    State: `disk` is None while the process performs nothing. The disk of a hot standby is kept when the standby becomes
        the task, because its in-flight entries are stored there.
    """

    def __init__(self, directory: Path, slot: str, config: JobConfig, depot: Depot | None, poller: Poller) -> None:
        self.disk: Disk | None = None
        self._directory = directory
        self._slot = slot
        self._config = config
        self._depot = depot
        self._poller = poller

    def shadow(self, task: str) -> None:
        """Open the disk of a hot standby, which writes only in-flight entries until the standby becomes the task."""
        spill = self._directory / "spill" / f"{task}-{self._slot}"
        shutil.rmtree(spill, ignore_errors=True)  # files left by a process that was killed
        self._open(task, 0, spill)

    def begin(self, task: str, incarnation: int) -> Disk:
        """Return the disk of a task, and remove the spill files that killed processes left for this task."""
        spill = self._directory / "spill" / f"{task}-{incarnation}"
        if self.disk is not None:
            spill = self.disk.spill_directory
            self.disk.become(incarnation)
        for old in spill.parent.glob(f"{task.rpartition('/')[2]}-*"):
            if old != spill:
                shutil.rmtree(old, ignore_errors=True)
        return self.disk or self._open(task, incarnation, spill)

    def _open(self, task: str, incarnation: int, spill: Path) -> Disk:
        invariant(self.disk is None, "a process performs one thing at a time", task=task)
        durable, first = self._config.durability == "os", self._config.first_incarnation
        merger = MERGER, self._config.key_groups
        self.disk = Disk(self._directory, task, incarnation, spill, durable, self._depot, first, merger)
        self._poller.register(self.disk.wake, select.POLLIN)
        return self.disk

    def ask(self, effect: Effect) -> None:
        """Ask the disk of a hot standby for an effect."""
        invariant(self.disk is not None, "what performs has a disk", effect=type(effect).__name__)
        self.disk.ask(effect)  # type: ignore[union-attr]

    def answer(self, ready: dict[object, int], take: Callable[[Event], None]) -> None:
        """Pass on the answers of a hot standby's disk."""
        if self.disk is not None and self.disk.wake in ready:
            for answer in self.disk.answers():
                take(answer)

    def close(self) -> None:
        """Close the disk and remove the spilled entries."""
        disk, self.disk = self.disk, None
        if disk is not None:
            self._poller.unregister(disk.wake)
            disk.close()
