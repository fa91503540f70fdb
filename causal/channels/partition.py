"""The input of a source task: a queue that the reader of a partition fills, with one read ahead.

The far end is not a process: there is no session, no link and no credit.  Its elements are lists that never were bytes.
"""

from __future__ import annotations

from causal.channels.queue import InputQueue
from causal.events import SourceRead
from causal.records.batch import LISTED, Chunk, end


class Partition(InputQueue):
    """One partition of a source; at most one read of it is outstanding."""

    def __init__(self, id: int, ordinal: int, source: int, position: int, ended: bool) -> None:
        super().__init__(id, ordinal, source, position, ended)
        self.reading = False
        """A read is outstanding."""

    def answered(self, event: SourceRead) -> None:
        """Queue what the reader has returned."""
        self.reading = False
        chunks = []
        if event.records:
            chunks.append(Chunk(LISTED, len(event.records), event.records, event.origin_ns))
        if event.ended:
            chunks.append(end())
            self.read_out = True
        self.accept_chunks(event.first, chunks)
