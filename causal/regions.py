"""Memory for what is kept from checkpoint to checkpoint, apart from what comes and goes with each batch.

Frames that stay where they were made lie among the lists and numbers of the batches, which then wander through memory
that no cache holds: a job of five tasks in a row took 5 % more CPU for it (docs/tried.md).  A region is given back as
soon as nothing in it is looked at any more.
"""

from __future__ import annotations

import mmap

REGION_BYTES = 1 << 20
"""Small beside what a task may keep: as long as anything in a region is kept, all of it is."""
APART_BYTES_MIN, APART_BYTES_MAX = 4 << 10, REGION_BYTES // 4
"""What is smaller does not matter; what is larger leaves too much of a region empty."""
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Regions:
    """Of one keeper: what it keeps lies in the order in which it was given."""

    __slots__ = ("_region", "_used")

    def __init__(self) -> None:
        self._region: memoryview | None = None
        self._used = 0

    def keep(self, payload: bytes) -> bytes | memoryview:
        """The same bytes, in a region if that is worth it; nobody writes to what is returned."""
        size = len(payload)
        if not APART_BYTES_MIN <= size <= APART_BYTES_MAX:
            return payload
        if self._region is None or size > REGION_BYTES - self._used:
            # Private: a process that user code forks must not write into what this one sends again.
            self._region, self._used = memoryview(mmap.mmap(-1, REGION_BYTES, flags=_PRIVATE)), 0
        kept = self._region[self._used : self._used + size]
        kept[:] = payload
        self._used += size
        return kept.toreadonly()
