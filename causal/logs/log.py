"""Determinant logs: append-only byte strings per (task, epoch), and deltas, which are byte ranges of them (D3).

Merging keeps the longer prefix, so it is idempotent and independent of the order of deltas. A gap is a protocol
violation, and overlapping bytes must be equal. The same class serves the owner, who appends, and the holders, who
merge. If an owner writes its log to stable storage, holders drop the stable bytes, and their copies begin after those
bytes (0012).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from causal.errors import PeerViolation, invariant

MARK_BYTES = 32
"""The number of stable bytes up to which the bytes themselves are sent, because a mark takes about eight bytes."""


class LogDelta(NamedTuple):
    """Bytes `offset` to `offset + len(bytes)` of the log of (task, epoch).

    A delta without bytes reports that the bytes before `offset` are stable.
    """

    task: int
    epoch: int
    offset: int
    bytes: bytes


class DeterminantLog:
    """The determinants of one task since the last complete checkpoint, one byte string per epoch.

    Epochs are consecutive. `truncate(e)` permanently drops the epochs below e. Deltas of these epochs that arrive later
    are stale and are ignored.

    Args:
        owner: whether this log belongs to the owner rather than a holder; the owner also keeps stable bytes.
    """

    __slots__ = ("task", "first_epoch", "grown", "_epochs", "_begins", "_written", "_owner")

    def __init__(self, task: int, first_epoch: int = 0, owner: bool = False) -> None:
        self.task = task
        self._owner = owner
        self.first_epoch = first_epoch
        self.grown = 0
        """A number that increases with every change, for a cheap test of whether there is anything to pass on."""
        self._epochs: dict[int, bytearray] = {}
        self._begins: dict[int, int] = {}
        """Epoch → the offset of the first byte kept in this copy, if above 0; the bytes before it are stable."""
        self._written: dict[int, int] = {}
        """Epoch → the number of bytes that the owner has on stable storage and also keeps in memory."""

    def append(self, epoch: int, entry: bytes) -> None:
        """Append a determinant of the owner to the log of `epoch`."""
        content = self._epochs.get(epoch)
        if content is None:
            invariant(
                epoch >= self.first_epoch,
                ("a log is not appended to in a truncated epoch"),
                task=self.task,
                epoch=epoch,
            )
            invariant(
                not any(e > epoch for e in self._epochs),
                ("a log is not appended to in an earlier epoch"),
                task=self.task,
                epoch=epoch,
            )
            content = self._epochs[epoch] = bytearray()
        content += entry
        self.grown += len(entry)

    def check(self, delta: LogDelta, reach: int = 0) -> int:
        """Return the extent that the epoch would have after merging `delta`, without merging it.

        Args:
            reach: the extent after other deltas that will be merged before this one.

        Raises:
            PeerViolation: `delta` begins beyond the bytes held, or contradicts them.
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
                f"log of task {delta.task}, epoch {delta.epoch}: a delta begins at byte {delta.offset}, but "
                f"only {extent} bytes are held"
            )
        start = max(delta.offset, begin)
        end = min(begin + len(content), delta.offset + len(delta.bytes))
        theirs = delta.bytes[start - delta.offset : end - delta.offset] if start < end else b""
        if theirs and content[start - begin : end - begin] != theirs:
            raise PeerViolation(f"log of task {delta.task}, epoch {delta.epoch}: a delta contradicts the held bytes")
        return max(extent, delta.offset + len(delta.bytes))

    def merge(self, delta: LogDelta) -> int:
        """Append the part of `delta` that is new; return the number of new bytes.

        Raises:
            PeerViolation: `delta` begins beyond the bytes held, or contradicts them; nothing was appended.
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
        """Return the bytes of `epoch` if they are complete and end at `offset`, where a delta can be appended.

        Return None if `check` and `merge` have to decide.
        """
        content = self._epochs.get(epoch)
        return None if content is None or offset != len(content) or self._begins else content

    def fresh(self, epoch: int, start: int, grown: int) -> bytearray | None:
        """Return the bytes of `epoch` if no byte is stable and only the bytes from `start` are new since `grown`.

        Return None if `deltas` has to decide.
        """
        content = self._epochs.get(epoch)
        if content is None or len(content) - start != self.grown - grown or self._begins or self._written:
            return None
        return content

    def _settle(self, epoch: int, extent: int) -> None:
        """Drop the first `extent` bytes of `epoch`, which are stable, and count any that never arrived as known."""
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
        """Epoch → the number of bytes on stable storage, as far as this task knows."""
        return self._written or self._begins

    @property
    def begins(self) -> dict[int, int]:
        """Epoch → the offset of the first byte kept in this copy, for epochs whose first bytes are not kept."""
        return self._begins

    def fill(self, epoch: int, prefix: bytes, extent: int) -> None:
        """Add the bytes that holders have dropped and the owner has read from stable storage, up to `extent`.

        Raises:
            PeerViolation: `prefix` contradicts the bytes held.
        """
        content, begin = self._epochs.get(epoch, bytearray()), self._begins.pop(epoch, 0)
        known = begin + len(content)
        if content and begin < len(prefix) and prefix[begin:known] != content[: len(prefix) - begin]:
            raise PeerViolation(
                f"log of task {self.task}, epoch {epoch}: the bytes on stable storage contradict the bytes that "
                "other tasks hold"
            )
        whole = bytearray(prefix[:begin])
        if len(whole) == begin:  # if it is shorter, there is a gap before the held bytes, which makes them unusable
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
        """Return the number of known bytes per epoch, whether kept or only stable, in ascending order of epoch.

        Epochs without bytes are omitted.
        """
        return {epoch: extent for epoch in sorted(self._epochs) if (extent := self.extent(epoch))}

    def view(self, epoch: int) -> bytearray | bytes:
        """Return the bytes of `epoch` without a copy; valid until the next append or merge."""
        return self._epochs.get(epoch, b"")

    def bytes_of(self, epoch: int, start: int = 0) -> bytes:
        """Return the bytes of `epoch` from `start`, or from the first byte kept if that is later."""
        content = self._epochs.get(epoch)
        return b"" if content is None else bytes(content[max(0, start - self._begins.get(epoch, 0)) :])

    def deltas(self, beyond: dict[int, int], limits: dict[int, int] | None = None) -> list[LogDelta]:
        """Return the bytes beyond `beyond[epoch]` of each epoch, up to `limits[epoch]` if set, which a holder lacks.

        Stable bytes are reported rather than sent.
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
        """Return all kept bytes, and the offsets at which they begin, up to `limits[epoch]` if set."""
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
        """Return the bytes that the owner has not yet written to stable storage."""
        return [
            LogDelta(self.task, epoch, start, bytes(content[start:]))
            for epoch, content in sorted(self._epochs.items())
            if (start := self._written.get(epoch, 0)) < len(content)
        ]

    def cut(self, stands: Mapping[int, int]) -> None:
        """Drop the bytes beyond `stands[epoch]` of each epoch, because a rollback has undone their events (D9)."""
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
        """Drop every epoch below `epoch`."""
        for old in [e for e in self._epochs if e < epoch]:
            del self._epochs[old]
            self._begins.pop(old, None)
            self._written.pop(old, None)
        self.first_epoch = max(self.first_epoch, epoch)

    @property
    def size(self) -> int:
        return sum(map(len, self._epochs.values()))
