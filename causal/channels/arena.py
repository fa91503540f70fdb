"""Memory regions for payloads that are kept from checkpoint to checkpoint, separate from the memory of each batch.

Payloads that stayed where they were allocated would be scattered among the lists and numbers of the batches, which
would then spread over more memory than a cache holds. In a job with a chain of five tasks, this cost 5 % more CPU
(docs/performance.md). A region is freed as soon as nothing in it is referenced.
"""

from __future__ import annotations

import mmap

REGION_BYTES = 1 << 20
"""The size of a region, small compared with the data a task may keep because one reference keeps the whole region."""
APART_BYTES_MIN, APART_BYTES_MAX = 4 << 10, REGION_BYTES // 4
"""The range of payload sizes that are copied: smaller ones do not matter, larger ones would waste too much space."""
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Arena:
    """The regions of one owner, which contain payloads in the order of the calls of `keep`."""

    __slots__ = ("_region", "_used")

    def __init__(self) -> None:
        self._region: memoryview | None = None
        self._used = 0

    def keep(self, payload: bytes) -> bytes | memoryview:
        """Return the same bytes, copied into a region if that is worthwhile; the result is read-only."""
        size = len(payload)
        if not APART_BYTES_MIN <= size <= APART_BYTES_MAX:
            return payload
        if self._region is None or size > REGION_BYTES - self._used:
            # Private: a process forked by user code must not overwrite payloads that this process may send again.
            self._region, self._used = memoryview(mmap.mmap(-1, REGION_BYTES, flags=_PRIVATE)), 0
        kept = self._region[self._used : self._used + size]
        kept[:] = payload
        self._used += size
        return kept.toreadonly()
