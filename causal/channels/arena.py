"""Memory regions for values that live from checkpoint to checkpoint, apart from those of each batch.

Frames left where they were allocated would lie among the lists and numbers of the batches, which then spread over
memory that no cache holds: a job of five tasks in a row took 5 % more CPU for it (docs/performance.md). A region is
freed as soon as nothing in it is referenced.
"""

from __future__ import annotations

import mmap

REGION_BYTES = 1 << 20
"""The size of a region: small compared with what a task may keep, as one reference keeps the whole region."""
APART_BYTES_MIN, APART_BYTES_MAX = 4 << 10, REGION_BYTES // 4
"""The sizes of payloads that are copied: smaller ones do not matter, larger ones leave too much of a region empty."""
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Arena:
    """The regions of one owner, which hold payloads in the order in which it keeps them."""

    __slots__ = ("_region", "_used")

    def __init__(self) -> None:
        self._region: memoryview | None = None
        self._used = 0

    def keep(self, payload: bytes) -> bytes | memoryview:
        """Return the same bytes, in a region if that is worth it; the result is read-only."""
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
