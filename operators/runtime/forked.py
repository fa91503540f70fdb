"""Execution of a function in a fork of this process, which discards its changes to modules, attributes and globals."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Callable
from types import TracebackType

from causal.errors import Unavailable

_PR_SET_PDEATHSIG = 1
_READ_BYTES = 1 << 16
_WELL, _FAILED = b"+", b"-"


class Fork:
    """A child process that performs `act()` and dies with this process; as a context manager, it ends with the context.

    Only the calling thread exists in the child. `act` must not use sockets or files of this process.
    """

    def __init__(self, act: Callable[[], bytes]) -> None:
        self._reading, writing = os.pipe()
        parent = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            _perform(act, writing, parent)
        os.close(writing)

    def __enter__(self) -> Fork:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._reading)
        _end(self._child)

    def result(self, within_s: float) -> bytes:
        """Wait for the result of `act`, and return it.

        Raises:
            Unavailable: `act` raised, the child died, or the child took too long.
        """
        answer = _read(self._reading, within_s)
        if answer is None:
            raise Unavailable(f"it took more than {within_s:g} s")
        if not answer:
            raise Unavailable("the child process died")
        if answer[:1] == _FAILED:
            raise Unavailable(answer[1:].decode())
        return answer[1:]


def in_fork(act: Callable[[], bytes], within_s: float) -> bytes:
    """Return the result of `act()`, which runs in a child process.

    Raises:
        Unavailable: as for `Fork.result`.
    """
    with Fork(act) as fork:
        return fork.result(within_s)


def _perform(act: Callable[[], bytes], writing: int, parent: int) -> None:
    """Run `act` in the child process; this function never returns."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.getppid() == parent:
            answer = _answered(act)
            while answer:
                answer = answer[os.write(writing, answer) :]
            status = 0
    finally:
        os._exit(status)


def _answered(act: Callable[[], bytes]) -> bytes:
    try:
        return _WELL + act()
    except Exception as problem:
        return _FAILED + f"{type(problem).__name__}: {problem}".encode()


def _read(reading: int, within_s: float) -> bytes | None:
    """Read to the end of the pipe; return None if that takes too long."""
    due_s, body = time.monotonic() + within_s, b""
    poll = select.poll()  # `select.select` does not accept descriptors above 1,023
    poll.register(reading, select.POLLIN)
    while True:
        if not poll.poll(max(0.0, due_s - time.monotonic()) * 1000):
            return None
        more = os.read(reading, _READ_BYTES)
        if not more:
            return body
        body += more


def _end(child: int) -> None:
    """Kill the child if it is still running, and reap it."""
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pass  # the child has already been reaped by the agent or another process
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        pass  # as above
