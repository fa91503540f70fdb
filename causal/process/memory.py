"""Returns blocks of many megabytes to the system as soon as they are freed.

glibc raises the size from which it maps a block separately with each such block that is freed, up to 32 MiB. After the
first giant record, later ones would be placed among small blocks, and the process would keep their memory, so the
maximum memory of a task would be unknown. Blocks of up to a few megabytes, for frames and batches, are kept for reuse.
"""

from __future__ import annotations

import ctypes

LARGE_BYTES = 4 << 20
"""The target of a chunk (`operators.records.cutting`): what is larger is one record."""
KEPT_BYTES = 16 << 20
"""The free bytes at the end of the heap that are not returned."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # constants of glibc's malloc.h


def give_large_blocks_back() -> bool:
    """Configure the C library of this process and of its forks; return False if it is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
