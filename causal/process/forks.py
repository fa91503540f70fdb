"""Locks between the processes of one host (`flock`), and descriptors and handlers that a forked child must not keep.

A lock lasts until the last copy of its descriptor is closed.

User code may fork (`multiprocessing`, `os.fork`) at any moment. O_CLOEXEC closes a descriptor only when another program
is started. A child that continues without starting one would therefore keep its parent's locks after the parent was
killed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time

_mine: dict[int, tuple[int, int]] = {}
"""Descriptor → (device, inode) of its file, because the number of a closed descriptor may be reused."""


def lock(descriptor: int, wait_s: float, pause_s: float = 0.02) -> bool:
    """Lock an open file against all other processes; return false if another process held the lock for `wait_s`."""
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
        time.sleep(pause_s)


def keep_from_children(descriptor: int) -> int:
    """Close a descriptor in every child that is forked from now on, and return the descriptor."""
    status = os.fstat(descriptor)
    _mine[descriptor] = (status.st_dev, status.st_ino)
    return descriptor


def open_descriptors() -> set[int]:
    """Return the open descriptors of this process."""
    descriptors: set[int] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:
            continue  # the list returned by `os.listdir` included its own descriptor, which is closed by now
        descriptors.add(int(name))
    return descriptors


def close(descriptor: int) -> None:
    """Close a descriptor that was kept from children."""
    _mine.pop(descriptor, None)
    os.close(descriptor)


def _close_in_child() -> None:
    for descriptor, file in _mine.items():
        try:
            status = os.fstat(descriptor)
        except OSError:
            continue  # closed in the meantime
        if (status.st_dev, status.st_ino) == file:
            os.close(descriptor)
    _mine.clear()


os.register_at_fork(after_in_child=_close_in_child)


_TO_END = (signal.SIGTERM, signal.SIGINT)
_masks = threading.local()
"""The signal mask that each forking thread had before the fork."""


def let_children_end() -> None:
    """Make SIGTERM and SIGINT end every child that is forked from now on, regardless of this process's handlers.

    Otherwise, `Process.terminate` would have no effect, and a `Pool` would never end.
    """
    os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_end_at_signals)


def _hold_signals() -> None:
    """Delay signals until the child has set its handlers, because some programs terminate a child immediately."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _TO_END)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _end_at_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _release_signals()
