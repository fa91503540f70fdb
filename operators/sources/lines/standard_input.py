"""Transfer of the standard input of `causal run` to the process that reads it, as a descriptor over a local socket.

Opening `/proc/PID/fd/0` would not suffice, because this opens the file again. Another user's pipe or file refuses it
(sudo, service managers), a socket does not support it, and some machines have no `/proc`.

The socket has an abstract name, outside any file system, that is derived from the process id. Each end checks the
identity of the other: the sender accepts only processes of its own user, and the receiver accepts only the process
whose input it must read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from causal.errors import PipelineError

TAKEN_WITHIN_S = 10.0
_CREDENTIALS = struct.Struct("3i")
"""Process, user and group of a peer (`struct ucred`)."""


def check_readable(who: str) -> None:
    """Raise `PipelineError` unless this process can read lines from its standard input."""
    try:
        kind, mode = os.fstat(0).st_mode, fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError as problem:
        raise PipelineError(f"{who}: standard input is not open ({problem.strerror}); use a pipe or a file") from None
    if mode == os.O_WRONLY:
        raise PipelineError(f"{who}: standard input is closed or cannot be read; use a pipe or a file")
    if stat.S_ISDIR(kind) or stat.S_ISBLK(kind):
        raise PipelineError(f"{who}: standard input is neither a pipe nor a file; use one, or use FilesSource")


@contextmanager
def offered() -> Iterator[None]:
    """Pass this process's standard input to processes of the same user that request it, until the context ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(_name(os.getpid()))
        listening.listen()
        giver = threading.Thread(target=_give, args=(listening,), daemon=True)
        giver.start()
        try:
            yield
        finally:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # makes `accept` return
            giver.join()


def _give(listening: socket.socket) -> None:
    while True:
        try:
            asking, _ = listening.accept()
        except OSError as problem:
            if problem.errno in (errno.ECONNABORTED, errno.EINTR):
                continue
            return
        with asking, suppress(OSError):
            if _peer(asking)[1] == os.getuid():
                socket.send_fds(asking, [b"0"], [0])


def taken(pid: int) -> int:
    """Return a descriptor for the standard input of another process on this machine.

    Raises:
        PipelineError: the process does not offer its standard input.
    """
    descriptors: list[int] = []
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(TAKEN_WITHIN_S)
            asking.connect(_name(pid))
            if _peer(asking)[:2] == (pid, os.getuid()):
                descriptors = list(socket.recv_fds(asking, 1, 1)[1])
    except OSError as problem:
        raise PipelineError(
            f"the standard input of `causal run` (process {pid}) cannot be reached: "
            f"{problem.strerror or problem}; StdinSource can read it only on the machine of `causal run`, as "
            "the same user"
        ) from None
    if not descriptors:
        raise PipelineError(f"process {pid} does not share its standard input; start the job again as one user")
    return descriptors[0]


def _name(pid: int) -> str:
    return f"\0causal-standard-input-{pid}"


def _peer(peer: socket.socket) -> tuple[int, int, int]:
    process, user, group = _CREDENTIALS.unpack(
        peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return process, user, group
