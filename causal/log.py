"""Determinant logs: append-only byte strings per (task, epoch), and deltas, which are byte ranges of them (D3).

Merging is "take the longer prefix": idempotent, and free of order.  A gap is a protocol violation,
an overlap must be byte-equal.  One class serves the owner, who appends, and the holders, who merge.
Where an owner writes its log to stable storage, holders forget what is there: bytes begin behind it (0012).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from causal.errors import PeerViolation, invariant

MARK_BYTES = 32
"""Fewer bytes that are stable are sent as they are: runs of them are packed, and saying it costs about eight."""


class LogDelta(NamedTuple):
    """Bytes `offset` to `offset + len(bytes)` of the log of (task, epoch); without bytes: those before are stable."""

    task: int
    epoch: int
    offset: int
    bytes: bytes


class DeterminantLog:
    """The determinants of one task since the last complete checkpoint, one byte string per epoch.

    Epochs are consecutive.  `truncate(e)` forgets the epochs below e for good: what arrives of them
    later is stale and ignored.

    Args:
        owner: this is no replica: bytes that are stable are kept all the same.
    """

    __slots__ = ("task", "first_epoch", "grown", "_epochs", "_begins", "_written", "_owner")

    def __init__(self, task: int, first_epoch: int = 0, owner: bool = False) -> None:
        self.task = task
        self._owner = owner
        self.first_epoch = first_epoch
        self.grown = 0
        """Rises with all that is new: tells cheaply whether there is anything to pass on."""
        self._epochs: dict[int, bytearray] = {}
        self._begins: dict[int, int] = {}
        """Where the bytes that are here begin: those before are stable.  Only what is above 0."""
        self._written: dict[int, int] = {}
        """How much of each epoch its owner has on stable storage; it keeps the bytes all the same."""

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
        if delta.bytes and delta.offset == len(held) >= reach and not self._begins:  # nearly always
            return delta.offset + len(delta.bytes)
        begin = self._begins.get(delta.epoch, 0)
        extent = max(begin + len(held), reach)
        if not delta.bytes:
            return max(extent, delta.offset)
        if delta.offset > extent:
            raise PeerViolation(
                f"log of task {delta.task}, epoch {delta.epoch}: a delta begins at {delta.offset}, "
                f"{extent} bytes are held"
            )
        start = max(delta.offset, begin)
        end = min(begin + len(held), delta.offset + len(delta.bytes))
        theirs = delta.bytes[start - delta.offset : end - delta.offset] if start < end else b""
        if theirs and held[start - begin : end - begin] != theirs:
            raise PeerViolation(f"log of task {delta.task}, epoch {delta.epoch}: a delta contradicts what is held")
        return max(extent, delta.offset + len(delta.bytes))

    def merge(self, delta: LogDelta) -> int:
        """Take the unseen suffix of `delta`; returns how many bytes were new.

        Raises:
            PeerViolation: it begins beyond what is held, or contradicts it.  Nothing was taken.
        """
        held = self._epochs.get(delta.epoch)
        if held is not None and delta.bytes and delta.offset == len(held) and not self._begins:  # nearly always
            held += delta.bytes
            self.grown += len(delta.bytes)
            return len(delta.bytes)
        before = self.extent(delta.epoch)
        if not delta.bytes:
            self._settle(delta.epoch, delta.offset)
            return max(0, self.extent(delta.epoch) - before)
        if self.check(delta) <= before:
            return 0
        fresh = delta.bytes[before - delta.offset :]
        held = self._epochs.setdefault(delta.epoch, bytearray())
        held += fresh
        self.grown += len(fresh)
        return len(fresh)

    def tail(self, epoch: int, offset: int) -> bytearray | None:
        """The bytes of `epoch`, where `offset` is their end and all of them are here: what goes on there can be added.

        None where somebody has to look closer: `check` and `merge`.
        """
        held = self._epochs.get(epoch)
        return None if held is None or offset != len(held) or self._begins else held

    def fresh(self, epoch: int, start: int, grown: int) -> bytearray | None:
        """The bytes of `epoch`, if those from `start` are all that has come since `grown`, and nothing is stable.

        None where somebody has to look closer: `deltas`.
        """
        held = self._epochs.get(epoch)
        if held is None or len(held) - start != self.grown - grown or self._begins or self._written:
            return None
        return held

    def _settle(self, epoch: int, extent: int) -> None:
        """So many bytes of `epoch` are stable: let go of them, and know of those that never came here."""
        begin = self._begins.get(epoch, 0)
        if epoch < self.first_epoch or extent <= (self.extent(epoch) if self._owner else begin):
            return
        held = self._epochs.setdefault(epoch, bytearray())
        del held[: extent - begin]
        self._begins[epoch] = extent
        self.grown += 1

    def written(self, epoch: int, extent: int) -> None:
        """The owner has so many bytes of `epoch` on stable storage."""
        if epoch >= self.first_epoch and extent > self._written.get(epoch, 0):
            self._written[epoch] = extent
            self.grown += 1

    @property
    def stable(self) -> dict[int, int]:
        """Bytes per epoch that are on stable storage, as far as is known here."""
        return self._written or self._begins

    @property
    def begins(self) -> dict[int, int]:
        """Where the bytes begin that are here, of epochs whose first ones are not."""
        return self._begins

    def fill(self, epoch: int, prefix: bytes, extent: int) -> None:
        """The owner has read what it wrote: put it where holders had left it out, and up to `extent`.

        Raises:
            PeerViolation: it contradicts what is held.
        """
        held, begin = self._epochs.get(epoch, bytearray()), self._begins.pop(epoch, 0)
        known = begin + len(held)
        if held and begin < len(prefix) and prefix[begin:known] != held[: len(prefix) - begin]:
            raise PeerViolation(f"log of task {self.task}, epoch {epoch}: what is stable contradicts what others hold")
        whole = bytearray(prefix[:begin])
        if len(whole) == begin:  # otherwise what is held hangs in the air: it is lost
            whole += held
            whole += prefix[known:extent]
        self._epochs[epoch] = whole
        self.grown += 1

    def extent(self, epoch: int) -> int:
        held = self._epochs.get(epoch)
        if held is None:
            return 0
        return len(held) + self._begins.get(epoch, 0) if self._begins else len(held)

    def extents(self) -> dict[int, int]:
        """Bytes known per epoch, ascending, here or stable; epochs without any are left out."""
        return {epoch: extent for epoch in sorted(self._epochs) if (extent := self.extent(epoch))}

    def view(self, epoch: int) -> bytearray | bytes:
        """The bytes themselves, for reading in place; valid until the next append or merge."""
        return self._epochs.get(epoch, b"")

    def bytes_of(self, epoch: int, start: int = 0) -> bytes:
        """From `start`, or where the bytes that are here begin."""
        held = self._epochs.get(epoch)
        return b"" if held is None else bytes(held[max(0, start - self._begins.get(epoch, 0)) :])

    def deltas(self, beyond: dict[int, int], limits: dict[int, int] | None = None) -> list[LogDelta]:
        """What a holder lacks that has `beyond[epoch]` bytes of each epoch; up to `limits[epoch]`, if there are any.

        What is stable is told, not given.
        """
        epochs = self._epochs
        if limits is None and not self._written and not self._begins:  # nearly always
            return [
                LogDelta(self.task, epoch, start, bytes(epochs[epoch][start:]))
                for epoch in (sorted(epochs) if len(epochs) > 1 else epochs)
                if (start := beyond.get(epoch, 0)) < len(epochs[epoch])
            ]
        lacking = []
        stable = self.stable
        for epoch in sorted(epochs):
            start = beyond.get(epoch, 0)
            end = self.extent(epoch)
            if limits is not None:
                end = min(end, limits.get(epoch, 0))
            begin = self._begins.get(epoch, 0) if self._begins else 0
            settled = min(stable.get(epoch, 0), end) if stable else 0
            if start < settled and (start < begin or start + MARK_BYTES < settled):
                lacking.append(LogDelta(self.task, epoch, settled, b""))
                start = settled
            if start < end:
                piece = bytes(epochs[epoch][start - begin : end - begin])
                lacking.append(LogDelta(self.task, epoch, start, piece))
        return lacking

    def whole(self, limits: Mapping[int, int] | None = None) -> list[LogDelta]:
        """All that is here, and where it begins; up to `limits[epoch]`, if there are any."""
        found = []
        for epoch, extent in self.extents().items():
            end = extent if limits is None else min(extent, limits.get(epoch, 0))
            begin = min(end, self._begins.get(epoch, 0))
            if begin:
                found.append(LogDelta(self.task, epoch, begin, b""))
            if begin < end:
                found.append(LogDelta(self.task, epoch, begin, bytes(self._epochs[epoch][: end - begin])))
        return found

    def unwritten(self) -> list[LogDelta]:
        """What the owner has to put on stable storage."""
        return [
            LogDelta(self.task, epoch, start, bytes(held[start:]))
            for epoch, held in sorted(self._epochs.items())
            if (start := self._written.get(epoch, 0)) < len(held)
        ]

    def cut(self, stands: Mapping[int, int]) -> None:
        """Forget what is beyond `stands[epoch]` bytes of each epoch: it did not happen (D9)."""
        self._written = {e: least for e, n in self._written.items() if (least := min(n, stands.get(e, 0)))}
        for epoch in list(self._epochs):
            begin, stand = self._begins.get(epoch, 0), stands.get(epoch, 0)
            del self._epochs[epoch][max(0, stand - begin) :]
            if stand < begin:
                self._begins[epoch] = stand
            if not stand:
                self._begins.pop(epoch, None)
            if not self.extent(epoch):
                del self._epochs[epoch]

    def truncate(self, epoch: int) -> None:
        """Forget every epoch below `epoch`."""
        for old in [e for e in self._epochs if e < epoch]:
            del self._epochs[old]
            self._begins.pop(old, None)
            self._written.pop(old, None)
        self.first_epoch = max(self.first_epoch, epoch)

    @property
    def size(self) -> int:
        return sum(map(len, self._epochs.values()))
