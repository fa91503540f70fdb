"""Descriptions of how a process ended, based on the exit status that its parent receives."""

from __future__ import annotations

from signal import SIGKILL, Signals

STOPPED = "stopped at savepoint "
"""The prefix of the end reason of a job that stops at a savepoint."""


def ending(status: int, asked: bool = False) -> str:
    """Return "exited with status 3", or "killed by signal 11 (SIGSEGV)" for a negative status.

    Args:
        asked: whether this program killed the process, so that its end needs no explanation.
    """
    if status >= 0:
        return f"exited with status {status}"
    try:
        name = f" ({Signals(-status).name})"
    except ValueError:  # `signal` has no name for this number
        name = ""
    often = ", as the kernel does when memory is exhausted" if -status == SIGKILL and not asked else ""
    return f"killed by signal {-status}{name}{often}"
