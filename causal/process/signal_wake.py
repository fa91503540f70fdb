"""A socket that signals make readable, because a wait for sockets would otherwise continue after a signal."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def woken_by_signals() -> Iterator[socket.socket]:
    """Return a socket to which each signal with a Python handler writes its number.

    Both ends stay open until signals are written elsewhere again, so a signal that arrives as the process ends is not
    an error. Outside the main thread, which alone may redirect signals, no signal makes the socket readable.
    """
    wake, waker = socket.socketpair()
    with wake, waker:
        for end in (wake, waker):
            end.setblocking(False)
        if threading.current_thread() is not threading.main_thread():
            yield wake
            return
        before = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        try:
            yield wake
        finally:
            signal.set_wakeup_fd(before)
