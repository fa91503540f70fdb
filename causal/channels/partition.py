"""The input of a source task: a queue that the reader of a partition fills, with at most one read in advance.

The far end is not a process, so there is no session, link or credit. The elements are lists that were never encoded as
bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from causal.channels.queue import InputQueue
from causal.cut import Mark
from causal.errors import invariant
from causal.records.batch import LISTED, Chunk, end


class Partition(InputQueue):
    """One partition of a source, with at most one outstanding read.

    Args:
        place: the mark at `position`, which the restored checkpoint contains; None if there is none.
    """

    def __init__(
        self, id: int, ordinal: int, source: int, position: int, ended: bool, place: Mark | None = None
    ) -> None:
        super().__init__(id, ordinal, source, position, ended)
        self.reading = False
        """Whether a read is outstanding."""
        self._place = place
        self._marks: deque[tuple[int, Sequence[Mark]]] = deque()
        """The marks of records that the task may not have delivered yet, and the position of the first of each."""

    def place(self) -> Mark | None:
        """Return the mark of the next element to be delivered; None if the reader gives no marks."""
        while self._marks:
            first, marks = self._marks[0]
            if self.delivered > first:
                self._place = marks[min(self.delivered - first, len(marks)) - 1]
            if self.delivered < first + len(marks):
                break
            self._marks.popleft()
        return self._place

    def answered(self, first: int, records: list[Any], origin_ns: int, ended: bool, marks: Sequence[Mark] = ()) -> None:
        """Queue the records that the reader has returned, starting at position `first`, and their marks.

        A mark without a record is that of position `first`.
        """
        self.reading = False
        if marks:
            invariant(len(marks) == max(1, len(records)), "each record has a mark", channel=self.id, position=first)
            self.place()
            self._marks.append((first + len(records) - len(marks), marks))
        chunks = []
        if records:
            chunks.append(Chunk(LISTED, len(records), records, origin_ns))
        if ended:
            chunks.append(end())
            self.read_out = True
        self.accept_chunks(first, chunks)
