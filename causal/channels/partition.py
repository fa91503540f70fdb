"""The input of a source task: a queue that the reader of a partition fills, with at most one read in advance.

The far end is not a process, so there is no session, link or credit. The elements are lists that were never encoded as
bytes.
"""

from __future__ import annotations

from typing import Any

from causal.channels.queue import InputQueue
from causal.records.batch import LISTED, Chunk, end


class Partition(InputQueue):
    """One partition of a source, with at most one outstanding read."""

    def __init__(self, id: int, ordinal: int, source: int, position: int, ended: bool) -> None:
        super().__init__(id, ordinal, source, position, ended)
        self.reading = False
        """Whether a read is outstanding."""

    def answered(self, first: int, records: list[Any], origin_ns: int, ended: bool) -> None:
        """Queue the records that the reader has returned, starting at position `first`."""
        self.reading = False
        chunks = []
        if records:
            chunks.append(Chunk(LISTED, len(records), records, origin_ns))
        if ended:
            chunks.append(end())
            self.read_out = True
        self.accept_chunks(first, chunks)
