"""Room for the command line and the marks of forked processes, as `/proc` shows them.

Both are memory that a process gets where a program is executed, and that forked processes can only overwrite.  So
`causal run` executes itself once more before it loads anything, with room in both, and with what interpreters of a
job's processes need in common: the same string hashes, and no working directory on `sys.path`.
"""

from __future__ import annotations

import os
import signal
import sys

JOB_MARK, SLOT_MARK = "CAUSAL_JOB", "CAUSAL_SLOT"
"""Environment variables of every process that an agent starts: the job's directory, and the slot."""

SLOT_BYTES_MAX = 64
JOB_ROOM, ARGUMENTS_ROOM = "." * 1024, "." * 1152
"""The text that fills the room at first: for a job's directory, and for a command line with it."""


def make_room() -> bool:
    """Execute this program again, with room; returns True there, and False where that is not possible."""
    if os.environ.get(JOB_MARK) == JOB_ROOM and sys.argv[-1] == ARGUMENTS_ROOM:
        for name in (JOB_MARK, SLOT_MARK):
            os.environ.pop(name, None)
        sys.argv.pop()
        sys.orig_argv.pop()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
        return True
    arguments = sys.argv[1:]
    if JOB_MARK in os.environ or sys.orig_argv[len(sys.orig_argv) - len(arguments) :] != arguments:
        return False  # a process of a job keeps the marks of that job; another program has imported this one
    command = [sys.orig_argv[0], *([] if sys.flags.safe_path else ["-P"]), *sys.orig_argv[1:], ARGUMENTS_ROOM]
    marks = {JOB_MARK: JOB_ROOM, SLOT_MARK: "." * SLOT_BYTES_MAX}
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))  # until there is a handler again
    try:
        os.execve(sys.executable, command, {**os.environ, **pinned_environment(), **marks})
    except OSError:  # the environment is as large as it may be
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
        return False


def pinned_environment() -> dict[str, str]:
    """Return the variables that make interpreters find this package, and hash strings alike."""
    home = __file__.rpartition(os.sep)[0].rpartition(os.sep)[0].rpartition(os.sep)[0]
    path = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(path)), "PYTHONHASHSEED": "0"}
