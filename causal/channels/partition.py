"""The input of a source task: a queue that the reader of a partition fills, with one read ahead.

The far end is not a process: there is no session, no link and no credit.  Its elements are lists that never were bytes.
"""

from __future__ import annotations

from typing import Any

from causal.channels.queue import InputQueue
from causal.records.batch import LISTED, Chunk, end


class Partition(InputQueue):
    """One partition of a source; at most one read of it is outstanding."""

    def __init__(self, id: int, ordinal: int, source: int, position: int, ended: bool) -> None:
        super().__init__(id, ordinal, source, position, ended)
        self.reading = False
        """A read is outstanding."""

    def answered(self, first: int, records: list[Any], origin_ns: int, ended: bool) -> None:
        """Queue what the reader has returned: records from position `first` onwards."""
        self.reading = False
        chunks = []
        if records:
            chunks.append(Chunk(LISTED, len(records), records, origin_ns))
        if ended:
            chunks.append(end())
            self.read_out = True
        self.accept_chunks(first, chunks)
