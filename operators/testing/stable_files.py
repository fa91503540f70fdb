"""Stable storage for determinants, in memory, with the rules of `causal.storage.stable` as invariants.

A directory that a younger incarnation has removed still accepts writes, but they are never read.
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.effects import AppendStable, BeginStable, ReadStable, TruncateStable
from causal.errors import invariant
from causal.events import Event, StableRead, StableWritten
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent

StableEffect = AppendStable | BeginStable | ReadStable | TruncateStable
"""The operations of a task on its stable storage."""


class StableFiles:
    """The files of all tasks: (task, incarnation) → epoch → bytes."""

    def __init__(self) -> None:
        self.begun: dict[tuple[int, int], dict[int, bytes]] = {}

    def perform(self, effect: StableEffect, task: int, incarnation: int) -> Event | None:
        """Perform an operation that an incarnation has requested; return the answer, if there is one."""
        if isinstance(effect, ReadStable):
            read = self.youngest(task, incarnation)
            return StableRead([LogDelta(task, epoch, 0, log) for epoch, log in sorted(read.items())])
        if isinstance(effect, BeginStable):
            self.begin(task, incarnation, effect.logs)
            return StableWritten([(task, delta.epoch, len(delta.bytes)) for delta in effect.logs])
        if isinstance(effect, AppendStable):
            return StableWritten(self.append(task, incarnation, effect.logs))
        self.truncate(task, incarnation, effect.epoch)
        return None

    def youngest(self, task: int, up_to: int) -> dict[int, bytes]:
        """Return the logs that are valid for an incarnation: those of the youngest incarnation not above it."""
        incarnations = [incarnation for owner, incarnation in self.begun if owner == task and incarnation <= up_to]
        return self.begun[task, max(incarnations)] if incarnations else {}

    def begin(self, task: int, incarnation: int, logs: Sequence[LogDelta]) -> None:
        """Begin the files of an incarnation, and remove those of older incarnations."""
        begins = {"task": task, "incarnation": incarnation}
        invariant((task, incarnation) not in self.begun, "an incarnation begins its stable files once", **begins)
        invariant(not any(delta.offset for delta in logs), "stable files begin with the log's first byte", **begins)
        self.begun[task, incarnation] = {delta.epoch: delta.bytes for delta in logs}
        for older in [key for key in self.begun if key[0] == task and key[1] < incarnation]:
            del self.begun[older]

    def append(self, task: int, incarnation: int, logs: Sequence[LogDelta]) -> list[Extent]:
        """Append to the files of an incarnation; return the extents that have been written."""
        files = self.begun.get((task, incarnation))
        if files is not None:
            for delta in logs:
                content = files.get(delta.epoch, b"")
                invariant(
                    delta.offset == len(content), "stable bytes continue the file",
                    task=task, offset=delta.offset, written=len(content),
                )  # fmt: skip
                files[delta.epoch] = content + delta.bytes
        return [(task, delta.epoch, delta.offset + len(delta.bytes)) for delta in logs]

    def truncate(self, task: int, incarnation: int, epoch: int) -> None:
        """Remove the logs of earlier epochs."""
        files = self.begun.get((task, incarnation), {})
        for old in [each for each in files if each < epoch]:
            del files[old]
