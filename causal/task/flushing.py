"""A task's own log on stable storage: begun once, extended in the background, and read if holders dropped it (0012).

A file is used only to supply the bytes that holders have dropped and other tasks depend on, up to the extent that these
tasks report. Bytes that a killed process wrote last, or that a zombie still writes, therefore have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.effects import AppendStable, BeginStable, Effect, ReadStable
from causal.errors import DeterminantsLost, PeerViolation
from causal.logs.dissemination import Holdings
from causal.logs.log import LogDelta
from causal.logs.rollback import Extent

FLUSH_EVERY_NS = 5_000_000
"""The minimum time between two writes; entries logged in between are written together."""
AGAIN_NS = 1_000_000_000
"""The time before a failed write is retried."""


class Flushing:
    """Writes and reads one incarnation's own log.

    State: no event is performed before `begun` is true. Events that an older file contains beyond the collected log may
    now occur differently, so the older file must be removed first.
    """

    def __init__(self, name: str, holdings: Holdings) -> None:
        self.begun = not holdings.flushing
        self._name = name
        self._holdings = holdings
        self._asked = False
        """Whether a write is outstanding."""
        self.reading = False
        self._read_at = -1
        self._grown = -1
        self._due_ns = 0

    def request_read(self) -> list[Effect]:
        """Request a read that shows whether determinants are lost, unless this was done for the current logs."""
        holdings = self._holdings
        if not holdings.flushing or not (holdings.own.begins or holdings.missing()):
            return []
        version = holdings.version
        if self.reading or version == self._read_at:
            return []
        self.reading = True
        return [ReadStable()]

    def written(self, extents: Sequence[Extent]) -> None:
        """Record the extents of the log that the file contains, by epoch."""
        self._asked, self.begun = False, True
        for _, epoch, extent in extents:
            self._holdings.own.written(epoch, extent)

    def failed(self, now_ns: int) -> None:
        """Schedule a retry, because the disk is full or faulty; unwritten bytes are shared with holders as usual."""
        self._asked, self._grown, self._due_ns = False, -1, now_ns + AGAIN_NS

    def read(self, deltas: Sequence[LogDelta]) -> None:
        """Fill the log with the bytes of the newest file, from offset 0 to the extent that other tasks report.

        Raises:
            DeterminantsLost: the file lacks bytes that other tasks have dropped, and no task can roll back.
        """
        holdings = self._holdings
        self.reading = False
        prefixes = {delta.epoch: delta.bytes for delta in deltas}
        begins = dict(holdings.own.begins)
        hanging = {epoch: begin for epoch, begin in begins.items() if len(prefixes.get(epoch, b"")) < begin}
        extents = dict.fromkeys(begins, 0) | {epoch: extent for _, epoch, extent in holdings.needed()}
        try:
            for epoch, extent in sorted(extents.items()):
                if epoch >= holdings.own.first_epoch:
                    holdings.own.fill(epoch, prefixes.get(epoch, b""), extent)
        except PeerViolation as problem:
            raise DeterminantsLost(f"{self._name}: {problem}; start a new job without --resume") from None
        if hanging and not holdings.partial:
            epoch, begin = next(iter(sorted(hanging.items())))
            raise DeterminantsLost(
                f"{self._name}, epoch {epoch}: {begin} bytes of its determinants were stable, but only "
                f"{len(prefixes.get(epoch, b''))} can be read under determinants/ in the job directory; "
                "restore the files, or start a new job without --resume"
            )
        self._read_at = holdings.version

    def begin(self) -> list[Effect]:
        """Write everything that has been collected, and drop the files of older incarnations."""
        if self._asked:
            return []
        self._asked = True
        self._grown = self._holdings.own.grown
        return [BeginStable(self._holdings.own.whole())]

    def due(self, now_ns: int) -> list[Effect]:
        """Write the entries logged since the last write, unless a write is outstanding."""
        own = self._holdings.own
        if not self._flushes() or now_ns < self._due_ns:
            return []
        self._grown = own.grown
        fresh = own.unwritten()
        if not fresh:
            return []
        self._asked = True
        self._due_ns = now_ns + FLUSH_EVERY_NS
        return [AppendStable(fresh)]

    def _flushes(self) -> bool:
        return self._holdings.flushing and self.begun and not self._asked and self._holdings.own.grown != self._grown

    def next_deadline_ns(self, now_ns: int) -> int | None:
        """Return the time at which the next write is due even if nothing arrives, or None if no write is due."""
        return max(self._due_ns, now_ns) if self._flushes() else None

    @property
    def unwritten_bytes(self) -> int:
        """The number of log bytes that the file does not contain yet."""
        own = self._holdings.own
        return max(0, own.size - sum(own.stable.values())) if self._holdings.flushing else 0
