"""A signal of this process's death to another process, before the kernel has freed this process's memory.

If the kernel has to free a gigabyte of memory after a death, tens of milliseconds pass before the process's pidfd,
parent or sockets show the death. The kernel releases the *robust* mutexes of its threads before that. The main thread
of a process therefore holds a shared robust mutex for as long as the process lives. A process that waits for the mutex
acquires it with EOWNERDEAD as soon as the main thread can run no more code. A process that ends normally releases the
mutex first.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
import time
from typing import Any

_NAME = "causal-lifeline"
_MAGIC = b"lifeline"
_HEADER = struct.Struct("<8sQQ")
"""The header: magic, process id of the holder, state. The magic is written last."""
_OWNED, _LET_GO = 1, 2
_BYTES = 4096
_MUTEX_AT = 64
_ATTRIBUTE_BYTES = 64
"""A size larger than any C library's pthread_mutexattr_t; the mutex itself can use the rest of the page."""
_SHARED = _ROBUST = 1
"""The value of PTHREAD_PROCESS_SHARED and of PTHREAD_MUTEX_ROBUST in every C library on Linux."""
_WAIT_S = 10.0
"""The maximum time for which a wait continues after `over` is set."""


class _Moment(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def _c_library() -> Any:
    """Return the C library, or None if it does not support robust mutexes."""
    library = ctypes.CDLL(None)
    known = all(
        hasattr(library, f"pthread_{name}")
        for name in ("mutexattr_setrobust", "mutexattr_setpshared", "mutex_timedlock", "mutex_unlock")
    )
    return library if known and ctypes.sizeof(ctypes.c_void_p) == 8 else None


def _mutex_in(page: mmap.mmap) -> ctypes.c_void_p:
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)) + _MUTEX_AT)


def _locked_within(library: Any, mutex: ctypes.c_void_p) -> int:
    """Wait for the mutex for a limited time; return the status, which is ETIMEDOUT if the mutex was not released.

    A clock that is set back must not lengthen the wait by hours, so the wall clock is used only if the C library has no
    alternative (musl, glibc before 2.30).
    """
    if hasattr(library, "pthread_mutex_clocklock"):
        until = _Moment(int(time.monotonic() + _WAIT_S), 0)
        return int(library.pthread_mutex_clocklock(mutex, time.CLOCK_MONOTONIC, ctypes.byref(until)))
    until = _Moment(int(time.time() + _WAIT_S), 0)
    return int(library.pthread_mutex_timedlock(mutex, ctypes.byref(until)))


class Lifeline:
    """The mutex that this process holds while it lives, created by `hold`; only the main thread may release it."""

    def __init__(self, library: Any, page: mmap.mmap) -> None:
        self._library = library
        self._page = page  # the mapping keeps the descriptor open, so that other processes find the page in /proc
        self._pid = os.getpid()

    def let_go(self) -> None:
        """Release the mutex before a normal end, so that no death is signalled; do nothing in a forked child."""
        if os.getpid() == self._pid:
            _HEADER.pack_into(self._page, 0, _MAGIC, self._pid, _LET_GO)
            self._library.pthread_mutex_unlock(_mutex_in(self._page))


def hold() -> Lifeline | None:
    """Return this process's lifeline, held by the calling thread, or None if the system does not support lifelines."""
    library = _c_library()
    if library is None:
        return None
    try:
        descriptor = os.memfd_create(_NAME)
        try:
            os.ftruncate(descriptor, _BYTES)
            page = mmap.mmap(descriptor, _BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    attributes, mutex = ctypes.create_string_buffer(_ATTRIBUTE_BYTES), _mutex_in(page)
    failed = (
        library.pthread_mutexattr_init(attributes)
        or library.pthread_mutexattr_setpshared(attributes, _SHARED)
        or library.pthread_mutexattr_setrobust(attributes, _ROBUST)
        or library.pthread_mutex_init(mutex, attributes)
        or library.pthread_mutex_lock(mutex)
    )
    if failed:
        return None
    _HEADER.pack_into(page, 0, _MAGIC, os.getpid(), _OWNED)
    return Lifeline(library, page)


class Watch:
    """The lifeline of another process, created by `watch`; `wait` should run on a separate thread.

    Attributes:
        over: set this to end a wait that is no longer needed.
    """

    def __init__(self, library: Any, page: mmap.mmap) -> None:
        self.over = False
        self._library = library
        self._page = page

    def wait(self) -> bool:
        """Wait for the holder's end; return whether it died rather than released the mutex.

        Also return false if `over` was set some seconds ago. This method can be called only once.
        """
        mutex = _mutex_in(self._page)
        status = errno.ETIMEDOUT
        while status == errno.ETIMEDOUT and not self.over:
            status = _locked_within(self._library, mutex)
        if status in (0, errno.EOWNERDEAD):
            # Unlocking the mutex without making it consistent reports the holder's death to all other waiting
            # processes.
            self._library.pthread_mutex_unlock(mutex)
        unreleased = _HEADER.unpack_from(self._page)[2] == _OWNED
        return unreleased and status in (errno.EOWNERDEAD, errno.ENOTRECOVERABLE)


def watch(pid: int) -> Watch | None:
    """Return the lifeline that a process holds, or None if it does not hold one (yet) or access is denied.

    The caller must ensure, with a pidfd, that this process id belongs to the intended process.
    """
    library = _c_library()
    if library is None:
        return None
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            if os.readlink(entry.path).startswith(f"/memfd:{_NAME} "):
                page = _opened(entry.path)
                if page is not None and _HEADER.unpack_from(page) == (_MAGIC, pid, _OWNED):
                    return Watch(library, page)
    except OSError:  # the process has ended, or access is denied
        return None
    return None


def _opened(path: str) -> mmap.mmap | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(descriptor, _BYTES) if os.fstat(descriptor).st_size == _BYTES else None
    finally:
        os.close(descriptor)
