"""Linux process features that the standard library does not expose: parent-death signals and subreapers."""

from __future__ import annotations

import ctypes
import os
import signal

from causal.errors import Unavailable
from standby.host.processes import start_time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

PARENT = "CAUSAL_PARENT"
"""The environment variable that contains the pid of the process that must outlive this one."""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise Unavailable(f"prctl({option}) failed: {os.strerror(ctypes.get_errno())}")


def die_with_parent() -> None:
    """Request SIGTERM for this process when the parent that the environment names dies, or now if it is already
    dead.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    parent = os.environ.pop(PARENT, "")
    if parent.isdecimal() and os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGTERM)


def parent_ended(parent: int) -> bool:
    """Return whether the process that was this one's parent has ended or is ending.

    The signal that `die_with_parent` requests is sent when the parent's thread that started this process ends. Other
    threads of the parent may live slightly longer. Until they end, the parent keeps its pid and is shown as a zombie.
    """
    return os.getppid() != parent or start_time(parent) is None


def adopt_orphans() -> None:
    """Make this process the parent of each of its orphaned descendants, so that none is lost."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
