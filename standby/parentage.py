"""Linux process facts that Python has no names for: parent-death signals and subreapers."""

from __future__ import annotations

import ctypes
import os
import signal

from causal.errors import Unavailable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

PARENT = "CAUSAL_PARENT"
"""Environment variable: pid of the process that must outlive this one."""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise Unavailable(f"prctl({option}) failed: {os.strerror(ctypes.get_errno())}")


def die_with_parent() -> None:
    """Get SIGTERM when the parent named by the environment dies; also if it died before this call."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    told = os.environ.pop(PARENT, "")
    if told.isdecimal() and os.getppid() != int(told):
        os.kill(os.getpid(), signal.SIGTERM)


def adopt_orphans() -> None:
    """Become the parent of every orphaned descendant, so that none escapes us."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
