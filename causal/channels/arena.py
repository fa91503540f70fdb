"""Memory regions for payloads that are kept from checkpoint to checkpoint, separate from the memory of each batch.

Payloads that stayed where they were allocated would be scattered among the lists and numbers of the batches. Those
would then spread over more memory than a cache holds. In a job with a chain of five tasks, this cost 5 % more CPU
(docs/performance.md). A region is freed as soon as nothing in it is referenced.
"""

from __future__ import annotations

import mmap

REGION_BYTES = 1 << 20
"""The region size, small compared with the data a task may keep because one reference keeps the whole region alive."""
APART_BYTES_MIN, APART_BYTES_MAX = 4 << 10, REGION_BYTES // 4
"""The payload sizes that are copied. Copying smaller payloads has no benefit, and larger ones would waste space."""
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Arena:
    """The regions of one owner, which contain payloads in the order in which `keep` received them."""

    __slots__ = ("_region", "_used")

    def __init__(self) -> None:
        self._region: memoryview | None = None
        self._used = 0

    def keep(self, payload: bytes) -> bytes | memoryview:
        """Return the same bytes, copied into a region if that is worthwhile. The result is read-only."""
        size = len(payload)
        if not APART_BYTES_MIN <= size <= APART_BYTES_MAX:
            return payload
        if self._region is None or size > REGION_BYTES - self._used:
            # The mapping is private because a process forked by user code must not overwrite payloads that this process
            # may send again.
            self._region, self._used = memoryview(mmap.mmap(-1, REGION_BYTES, flags=_PRIVATE)), 0
        kept = self._region[self._used : self._used + size]
        kept[:] = payload
        self._used += size
        return kept.toreadonly()
