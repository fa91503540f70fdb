"""Cuts connections of another process: `shutdown` on its own socket, as a router on the way would do to it.

The socket is borrowed with pidfd_getfd (Linux 5.6, the right to trace the process), so it works for TCP and
for Unix sockets, without a proxy in between and without touching anything else of the machine.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path

_PIDFD_GETFD = 438
_libc = ctypes.CDLL(None, use_errno=True)

NOT_PERMITTED = frozenset((errno.EPERM, errno.ENOSYS, errno.EACCES))


@dataclass(frozen=True, slots=True)
class Link:
    """One connected socket of a process."""

    pid: int
    descriptor: int
    tcp: bool
    control: bool
    """It leads to the supervisor."""


def links(pid: int, runtime: Path) -> list[Link]:
    """Return the connections of a process of the job: TCP on this host, or sockets in the runtime directory.

    Raises:
        PermissionError: this machine does not permit borrowing sockets.
    """
    connected: list[Link] = []
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except (FileNotFoundError, ProcessLookupError):
        return connected
    for name in names:
        borrowed = _borrow(pid, int(name))
        if borrowed is None:
            continue
        with borrowed:
            link = _link(pid, int(name), borrowed, str(runtime))
        if link is not None:
            connected.append(link)
    return connected


def cut(link: Link) -> bool:
    """Cut the connection in both directions; returns whether there was one."""
    borrowed = _borrow(link.pid, link.descriptor)
    if borrowed is None:
        return False
    with borrowed:
        try:
            borrowed.shutdown(socket.SHUT_RDWR)
        except OSError as problem:
            if problem.errno == errno.ENOTCONN:
                return False
            raise
    return True


def _link(pid: int, descriptor: int, borrowed: socket.socket, runtime: str) -> Link | None:
    if borrowed.type != socket.SOCK_STREAM:
        return None
    try:
        ends = [borrowed.getsockname(), borrowed.getpeername()]
    except OSError:
        return None  # it listens, or has been cut already
    if borrowed.family == socket.AF_INET:
        return Link(pid, descriptor, tcp=True, control=False)
    if borrowed.family != socket.AF_UNIX:
        return None
    named = [end for end in ends if isinstance(end, str) and end.startswith(runtime + "/")]
    return Link(pid, descriptor, tcp=False, control=named[0].endswith("/supervisor")) if named else None


def _borrow(pid: int, descriptor: int) -> socket.socket | None:
    """Return the process's socket of a descriptor; None if it is no socket or gone."""
    try:
        if not os.readlink(f"/proc/{pid}/fd/{descriptor}").startswith("socket:"):
            return None
        pidfd = os.pidfd_open(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        ctypes.set_errno(0)
        ours = _libc.syscall(_PIDFD_GETFD, pidfd, descriptor, 0)
        problem = ctypes.get_errno()
    finally:
        os.close(pidfd)
    if ours >= 0:
        return socket.socket(fileno=ours)
    if problem in NOT_PERMITTED:
        raise PermissionError(problem, "sockets of another process cannot be borrowed here (pidfd_getfd)")
    return None
