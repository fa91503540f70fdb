"""A socket that becomes readable when a signal arrives, because a wait on sockets would otherwise continue."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def woken_by_signals() -> Iterator[socket.socket]:
    """Return a socket to which each signal with a Python handler writes its number.

    Both ends stay open until signals are written elsewhere again, so that a signal that arrives while the process ends
    is not an error. Outside the main thread, no signal makes the socket readable, because only the main thread may
    redirect signals.
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
