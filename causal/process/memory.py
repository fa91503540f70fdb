"""Returns blocks of many megabytes to the system as soon as they are freed.

glibc raises the size from which it maps a block separately with each such block that is freed, up to 32 MiB. After the
first giant record the next ones would lie among small blocks, and their room would stay with the process: what a task
holds at most would be unknown. Blocks of frames and batches, of up to a few megabytes, are kept for the next ones.
"""

from __future__ import annotations

import ctypes

LARGE_BYTES = 4 << 20
"""The target of a chunk (`operators.records.cutting`): what is larger is one record."""
KEPT_BYTES = 16 << 20
"""The free bytes at the end of the heap that are not returned."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def give_large_blocks_back() -> bool:
    """Configure the C library of this process and those forked from it; False where it is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
