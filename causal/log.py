"""Determinant logs: append-only byte strings per (task, epoch), and deltas, which are byte ranges of them (D3).

Merging is "take the longer prefix": idempotent, and free of order.  A gap is a protocol violation,
an overlap must be byte-equal.  One class serves the owner, who appends, and the holders, who merge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from causal.errors import PeerViolation, invariant


@dataclass(frozen=True, slots=True)
class LogDelta:
    """Bytes `offset` to `offset + len(bytes)` of the log of (task, epoch)."""

    task: int
    epoch: int
    offset: int
    bytes: bytes


class DeterminantLog:
    """The determinants of one task since the last complete checkpoint, one byte string per epoch.

    Epochs are consecutive.  `truncate(e)` forgets the epochs below e for good: what arrives of them
    later is stale and ignored.
    """

    __slots__ = ("task", "first_epoch", "grown", "_epochs")

    def __init__(self, task: int, first_epoch: int = 0) -> None:
        self.task = task
        self.first_epoch = first_epoch
        self.grown = 0
        """Bytes ever added; tells cheaply whether there is anything new."""
        self._epochs: dict[int, bytearray] = {}

    def append(self, epoch: int, entry: bytes) -> None:
        """Add a determinant of the owner at the end of `epoch`."""
        held = self._epochs.get(epoch)
        if held is None:
            invariant(epoch >= self.first_epoch, "appending to a truncated epoch", task=self.task, epoch=epoch)
            invariant(
                not any(e > epoch for e in self._epochs), "appending behind a later epoch", task=self.task, epoch=epoch
            )
            held = self._epochs[epoch] = bytearray()
        held += entry
        self.grown += len(entry)

    def check(self, delta: LogDelta, reach: int = 0) -> int:
        """The extent of its epoch that `delta` leads to, unless it cannot be merged; changes nothing.

        Args:
            reach: extent that other deltas lead to, which are merged before.

        Raises:
            PeerViolation: it begins beyond what is held, or contradicts it.
        """
        if delta.epoch < self.first_epoch:
            return 0
        held = self._epochs.get(delta.epoch, b"")
        extent = max(len(held), reach)
        if delta.offset > extent:
            raise PeerViolation(
                f"log of task {delta.task}, epoch {delta.epoch}: a delta begins at {delta.offset}, "
                f"{extent} bytes are held"
            )
        overlap = min(len(held) - delta.offset, len(delta.bytes))
        if overlap > 0 and held[delta.offset : delta.offset + overlap] != delta.bytes[:overlap]:
            raise PeerViolation(f"log of task {delta.task}, epoch {delta.epoch}: a delta contradicts what is held")
        return max(extent, delta.offset + len(delta.bytes))

    def merge(self, delta: LogDelta) -> int:
        """Take the unseen suffix of `delta`; returns how many bytes were new.

        Raises:
            PeerViolation: it begins beyond what is held, or contradicts it.  Nothing was taken.
        """
        before = self.extent(delta.epoch)
        if self.check(delta) <= before:
            return 0
        fresh = delta.bytes[before - delta.offset :]
        held = self._epochs.setdefault(delta.epoch, bytearray())
        held += fresh
        self.grown += len(fresh)
        return len(fresh)

    def extent(self, epoch: int) -> int:
        held = self._epochs.get(epoch)
        return 0 if held is None else len(held)

    def extents(self) -> dict[int, int]:
        """Bytes held per epoch, ascending; epochs without bytes are left out."""
        return {epoch: len(self._epochs[epoch]) for epoch in sorted(self._epochs) if self._epochs[epoch]}

    def view(self, epoch: int) -> bytearray | bytes:
        """The bytes themselves, for reading in place; valid until the next append or merge."""
        return self._epochs.get(epoch, b"")

    def bytes_of(self, epoch: int, start: int = 0) -> bytes:
        held = self._epochs.get(epoch)
        return b"" if held is None else bytes(held[start:])

    def deltas(self, beyond: dict[int, int], limits: dict[int, int] | None = None) -> list[LogDelta]:
        """What a holder lacks that has `beyond[epoch]` bytes of each epoch; up to `limits[epoch]`, if there are any."""
        lacking = []
        for epoch in sorted(self._epochs):
            start = beyond.get(epoch, 0)
            end = len(self._epochs[epoch])
            if limits is not None:
                end = min(end, limits.get(epoch, 0))
            if start < end:
                lacking.append(LogDelta(self.task, epoch, start, bytes(self._epochs[epoch][start:end])))
        return lacking

    def cut(self, stands: Mapping[int, int]) -> None:
        """Forget what is beyond `stands[epoch]` bytes of each epoch: it did not happen (D9)."""
        for epoch in list(self._epochs):
            del self._epochs[epoch][stands.get(epoch, 0) :]
            if not self._epochs[epoch]:
                del self._epochs[epoch]

    def truncate(self, epoch: int) -> None:
        """Forget every epoch below `epoch`."""
        for old in [e for e in self._epochs if e < epoch]:
            del self._epochs[old]
        self.first_epoch = max(self.first_epoch, epoch)

    @property
    def size(self) -> int:
        return sum(map(len, self._epochs.values()))
