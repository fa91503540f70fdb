"""A socket that signals make readable: a wait for sockets would otherwise rest further."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def woken_by_signals() -> Iterator[socket.socket]:
    """Return a socket that each signal with a handler of Python's makes readable, with the number of the signal.

    Both ends stay open until signals write elsewhere again: one that arrives as the process ends is not an error. In
    another thread than the main one, which alone may set where signals are written, none makes it readable.
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
