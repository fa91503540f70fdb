"""Determinant logs: append-only byte strings per (task, epoch), and deltas, which are byte ranges of them (D3).

Merging is "take the longer prefix": idempotent, and free of order.  A gap is a protocol violation,
an overlap must be byte-equal.  One class serves the owner, who appends, and the holders, who merge.
Where an owner writes its log to stable storage, holders forget the stable bytes: theirs begin after them (0012).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from causal.errors import PeerViolation, invariant

MARK_BYTES = 32
"""The stable bytes up to which bytes are sent as they are: runs of them are packed, and a mark costs about eight."""


class LogDelta(NamedTuple):
    """Bytes `offset` to `offset + len(bytes)` of the log of (task, epoch); without bytes: those before are stable."""

    task: int
    epoch: int
    offset: int
    bytes: bytes


class DeterminantLog:
    """The determinants of one task since the last complete checkpoint, one byte string per epoch.

    Epochs are consecutive. `truncate(e)` forgets the epochs below e permanently: what arrives of them later is stale
    and ignored.

    Args:
        owner: whether this is the owner's log and no replica: the owner keeps stable bytes as well.
    """

    __slots__ = ("task", "first_epoch", "grown", "_epochs", "_begins", "_written", "_owner")

    def __init__(self, task: int, first_epoch: int = 0, owner: bool = False) -> None:
        self.task = task
        self._owner = owner
        self.first_epoch = first_epoch
        self.grown = 0
        """A number that rises with every change: it shows cheaply whether there is anything to pass on."""
        self._epochs: dict[int, bytearray] = {}
        self._begins: dict[int, int] = {}
        """Epoch → offset of the first byte that is here, if above 0: those before are stable."""
        self._written: dict[int, int] = {}
        """Epoch → bytes that the owner has on stable storage; it keeps the bytes as well."""

    def append(self, epoch: int, entry: bytes) -> None:
        """Add a determinant of the owner at the end of `epoch`."""
        content = self._epochs.get(epoch)
        if content is None:
            invariant(epoch >= self.first_epoch, "appending to a truncated epoch", task=self.task, epoch=epoch)
            invariant(
                not any(e > epoch for e in self._epochs), "appending after a later epoch", task=self.task, epoch=epoch
            )
            content = self._epochs[epoch] = bytearray()
        content += entry
        self.grown += len(entry)

    def check(self, delta: LogDelta, reach: int = 0) -> int:
        """Return the extent of its epoch that `delta` leads to, unless it cannot be merged; changes nothing.

        Args:
            reach: the extent that other deltas lead to, which are merged before.

        Raises:
            PeerViolation: it begins beyond the bytes held, or contradicts them.
        """
        if delta.epoch < self.first_epoch:
            return 0
        content = self._epochs.get(delta.epoch, b"")
        if delta.bytes and delta.offset == len(content) >= reach and not self._begins:  # nearly always
            return delta.offset + len(delta.bytes)
        begin = self._begins.get(delta.epoch, 0)
        extent = max(begin + len(content), reach)
        if not delta.bytes:
            return max(extent, delta.offset)
        if delta.offset > extent:
            raise PeerViolation(
                f"log of task {delta.task}, epoch {delta.epoch}: a delta begins at {delta.offset}, "
                f"{extent} bytes are held"
            )
        start = max(delta.offset, begin)
        end = min(begin + len(content), delta.offset + len(delta.bytes))
        theirs = delta.bytes[start - delta.offset : end - delta.offset] if start < end else b""
        if theirs and content[start - begin : end - begin] != theirs:
            raise PeerViolation(f"log of task {delta.task}, epoch {delta.epoch}: a delta contradicts the held bytes")
        return max(extent, delta.offset + len(delta.bytes))

    def merge(self, delta: LogDelta) -> int:
        """Append the unseen suffix of `delta`; returns how many bytes were new.

        Raises:
            PeerViolation: it begins beyond the bytes held, or contradicts them.  Nothing was appended.
        """
        content = self._epochs.get(delta.epoch)
        if content is not None and delta.bytes and delta.offset == len(content) and not self._begins:  # nearly always
            content += delta.bytes
            self.grown += len(delta.bytes)
            return len(delta.bytes)
        before = self.extent(delta.epoch)
        if not delta.bytes:
            self._settle(delta.epoch, delta.offset)
            return max(0, self.extent(delta.epoch) - before)
        if self.check(delta) <= before:
            return 0
        fresh = delta.bytes[before - delta.offset :]
        content = self._epochs.setdefault(delta.epoch, bytearray())
        content += fresh
        self.grown += len(fresh)
        return len(fresh)

    def tail(self, epoch: int, offset: int) -> bytearray | None:
        """Return the bytes of `epoch`, if all are here and end at `offset`: a delta from there can be appended.

        None where `check` and `merge` have to decide.
        """
        content = self._epochs.get(epoch)
        return None if content is None or offset != len(content) or self._begins else content

    def fresh(self, epoch: int, start: int, grown: int) -> bytearray | None:
        """Return the bytes of `epoch`, if those from `start` are all that is new since `grown` and nothing is stable.

        None where `deltas` has to decide.
        """
        content = self._epochs.get(epoch)
        if content is None or len(content) - start != self.grown - grown or self._begins or self._written:
            return None
        return content

    def _settle(self, epoch: int, extent: int) -> None:
        """Forget the first `extent` bytes of `epoch`, which are stable, and counts those that never came as known."""
        begin = self._begins.get(epoch, 0)
        if epoch < self.first_epoch or extent <= (self.extent(epoch) if self._owner else begin):
            return
        content = self._epochs.setdefault(epoch, bytearray())
        del content[: extent - begin]
        self._begins[epoch] = extent
        self.grown += 1

    def written(self, epoch: int, extent: int) -> None:
        """Record that the owner has `extent` bytes of `epoch` on stable storage."""
        if epoch >= self.first_epoch and extent > self._written.get(epoch, 0):
            self._written[epoch] = extent
            self.grown += 1

    @property
    def stable(self) -> dict[int, int]:
        """The bytes per epoch that are on stable storage, as far as is known here."""
        return self._written or self._begins

    @property
    def begins(self) -> dict[int, int]:
        """The offset of the first byte that is here, of epochs whose first bytes are not."""
        return self._begins

    def fill(self, epoch: int, prefix: bytes, extent: int) -> None:
        """Fill in what the owner has read from stable storage: bytes that holders have forgotten, and up to `extent`.

        Raises:
            PeerViolation: it contradicts the bytes held.
        """
        content, begin = self._epochs.get(epoch, bytearray()), self._begins.pop(epoch, 0)
        known = begin + len(content)
        if content and begin < len(prefix) and prefix[begin:known] != content[: len(prefix) - begin]:
            raise PeerViolation(f"log of task {self.task}, epoch {epoch}: what is stable contradicts what others hold")
        whole = bytearray(prefix[:begin])
        if len(whole) == begin:  # otherwise there is a gap before the bytes held: it is lost
            whole += content
            whole += prefix[known:extent]
        self._epochs[epoch] = whole
        self.grown += 1

    def extent(self, epoch: int) -> int:
        content = self._epochs.get(epoch)
        if content is None:
            return 0
        return len(content) + self._begins.get(epoch, 0) if self._begins else len(content)

    def extents(self) -> dict[int, int]:
        """Return the bytes known per epoch, ascending, here or stable; epochs without any are left out."""
        return {epoch: extent for epoch in sorted(self._epochs) if (extent := self.extent(epoch))}

    def view(self, epoch: int) -> bytearray | bytes:
        """Return the bytes themselves, for reading in place; valid until the next append or merge."""
        return self._epochs.get(epoch, b"")

    def bytes_of(self, epoch: int, start: int = 0) -> bytes:
        """Return the bytes from `start`, or from the first one that is here."""
        content = self._epochs.get(epoch)
        return b"" if content is None else bytes(content[max(0, start - self._begins.get(epoch, 0)) :])

    def deltas(self, beyond: dict[int, int], limits: dict[int, int] | None = None) -> list[LogDelta]:
        """Return what a holder with `beyond[epoch]` bytes of each epoch lacks; up to `limits[epoch]`, if given.

        Stable bytes are reported, not sent.
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
        """Return all bytes that are here, and where they begin; up to `limits[epoch]`, if given."""
        deltas = []
        for epoch, extent in self.extents().items():
            end = extent if limits is None else min(extent, limits.get(epoch, 0))
            begin = min(end, self._begins.get(epoch, 0))
            if begin:
                deltas.append(LogDelta(self.task, epoch, begin, b""))
            if begin < end:
                deltas.append(LogDelta(self.task, epoch, begin, bytes(self._epochs[epoch][: end - begin])))
        return deltas

    def unwritten(self) -> list[LogDelta]:
        """Return what the owner has to put on stable storage."""
        return [
            LogDelta(self.task, epoch, start, bytes(content[start:]))
            for epoch, content in sorted(self._epochs.items())
            if (start := self._written.get(epoch, 0)) < len(content)
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
