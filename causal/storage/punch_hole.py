"""Frees disk space at the beginning of a growing file: the freed range reads as zeros, and offsets are unchanged."""

from __future__ import annotations

import ctypes
import errno
import os

_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h
_UNKNOWN = (errno.EOPNOTSUPP, errno.ENOSYS)
_BLOCK_BYTES = 512
"""The unit of `st_blocks`, regardless of the file system's block size."""


def free(descriptor: int, below: int) -> bool:
    """Free the disk space of the bytes before `below`; return false if the file system does not support this.

    Raises:
        OSError: the call failed for another reason.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "fallocate64", None) or libc.fallocate
    length = ctypes.c_int64(below)
    if below <= 0 or call(descriptor, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_int64(0), length) == 0:
        return True
    problem = ctypes.get_errno()
    if problem in _UNKNOWN:
        return False
    raise OSError(problem, os.strerror(problem))


def taken_bytes(descriptor: int) -> int:
    """Return the number of bytes that the file occupies on its disk."""
    return os.fstat(descriptor).st_blocks * _BLOCK_BYTES
