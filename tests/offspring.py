"""The child processes of a test process: those of its own test, and those that were there before."""

from __future__ import annotations

import os
from pathlib import Path


def children() -> set[int]:
    """Return the pids of the children of this process, those included that have ended and are not reaped."""
    lists = [each.read_text() for each in Path("/proc/self/task").glob("*/children")]
    return {int(pid) for each in lists for pid in each.split()}


def reaped_but(before: set[int]) -> bool:
    """Reap the children that have ended; whether no child is left but those of `before`, which it leaves alone."""
    for pid in children() - before:
        os.waitpid(pid, os.WNOHANG)
    return children() <= before
