"""Returns blocks of many megabytes to the system as soon as they are freed.

glibc maps blocks above a certain size separately, and raises that size with each such block that is freed, up to
32 MiB. After the first giant record, later ones would be placed among small blocks, and the process would keep their
memory, so a task's maximum memory use would be unknown. Blocks of up to a few megabytes, which frames and batches use,
are kept for reuse.
"""

from __future__ import annotations

import ctypes

LARGE_BYTES = 4 << 20
"""The target size of a chunk (`operators.records.cutting`); a larger block contains a single record."""
KEPT_BYTES = 16 << 20
"""The number of free bytes at the end of the heap that are not returned to the system."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # constants of glibc's malloc.h


def give_large_blocks_back() -> bool:
    """Configure the C library for this process and its forks; return False if it is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
