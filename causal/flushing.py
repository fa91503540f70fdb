"""A task's own log on stable storage: begun once, extended in the background, read where holders left it out (0012).

A file never says more than somebody who depends on it: it fills in what holders have let go of, up to where they say
the log had come.  So it does not matter what a killed process wrote last, or a zombie goes on writing.
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.dissemination import Holdings
from causal.effects import AppendStable, BeginStable, Effect, ReadStable
from causal.errors import Lost, PeerViolation
from causal.events import StableFailed, StableRead, StableWritten
from causal.log import LogDelta

FLUSH_EVERY_NS = 5_000_000
"""What is logged meanwhile is written at once."""
AGAIN_NS = 1_000_000_000
"""After a write that failed."""


class Flushing:
    """What one incarnation has written, and has to.

    State: nothing is performed before `begun`: what an older file says beyond what was collected may happen
    differently now, so it must be gone.
    """

    def __init__(self, name: str, holdings: Holdings) -> None:
        self.begun = not holdings.flushing
        self._name = name
        self._holdings = holdings
        self._asked = False
        """Something has been asked of the disk that it has not answered."""
        self.reading = False
        self._read_at = -1
        self._grown = -1
        self._due_ns = 0

    def wanted(self) -> list[Effect]:
        """What has to be read before it can be said what is lost; nothing if the file has been, for what is told."""
        holdings = self._holdings
        if not holdings.flushing or not (holdings.own.begins or holdings.missing()):
            return []
        version = holdings.version
        if self.reading or version == self._read_at:
            return []
        self.reading = True
        return [ReadStable()]

    def told(self, event: StableRead | StableWritten | StableFailed, now_ns: int) -> None:
        """What the disk says."""
        if isinstance(event, StableRead):
            self._read(event.logs)
        elif isinstance(event, StableWritten):
            self._asked, self.begun = False, True
            for _, epoch, extent in event.extents:
                self._holdings.own.written(epoch, extent)
        else:  # the disk is full, or refuses: what is not written is shared, as ever
            self._asked, self._grown, self._due_ns = False, -1, now_ns + AGAIN_NS

    def _read(self, found: Sequence[LogDelta]) -> None:
        """The youngest file's bytes, from offset 0: fill the log as far as others say that it had come.

        Raises:
            Lost: a part that others have let go of is not there, and nobody can be told to go back.
        """
        holdings = self._holdings
        self.reading = False
        prefixes = {delta.epoch: delta.bytes for delta in found}
        begins = dict(holdings.own.begins)
        hanging = {epoch: begin for epoch, begin in begins.items() if len(prefixes.get(epoch, b"")) < begin}
        extents = dict.fromkeys(begins, 0) | {epoch: extent for _, epoch, extent in holdings.needed()}
        try:
            for epoch, extent in sorted(extents.items()):
                if epoch >= holdings.own.first_epoch:
                    holdings.own.fill(epoch, prefixes.get(epoch, b""), extent)
        except PeerViolation as problem:
            raise Lost(f"{self._name}: {problem}; start the job anew without --resume") from None
        if hanging and not holdings.partial:
            epoch, begin = next(iter(sorted(hanging.items())))
            raise Lost(
                f"{self._name}, epoch {epoch}: {begin} bytes of its determinants were stable, "
                f"{len(prefixes.get(epoch, b''))} can be read under determinants/ of the job's directory; "
                "restore the files, or start the job anew without --resume"
            )
        self._read_at = holdings.version

    def begin(self) -> list[Effect]:
        """Everything has been collected: write it, and forget the files of older incarnations."""
        if self._asked:
            return []
        self._asked = True
        self._grown = self._holdings.own.grown
        return [BeginStable(self._holdings.own.whole())]

    def due(self, now_ns: int) -> list[Effect]:
        """Write what has been logged since, unless something is being written."""
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
        """When there will be something to write although nothing happens."""
        return max(self._due_ns, now_ns) if self._flushes() else None

    @property
    def unwritten_bytes(self) -> int:
        """How far the file is behind."""
        own = self._holdings.own
        return max(0, own.size - sum(own.stable.values())) if self._holdings.flushing else 0
