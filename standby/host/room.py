"""Room for the command line and the marks of forked processes, as shown in `/proc`.

Both are memory that a process receives when it executes a program, and that forked processes can only overwrite.
Therefore `causal run` executes itself once more before it loads anything, with room in both, and with the settings that
the interpreters of a job's processes must share: the same string hashes, and no working directory on `sys.path`.
"""

from __future__ import annotations

import os
import signal
import sys

JOB_MARK, SLOT_MARK = "CAUSAL_JOB", "CAUSAL_SLOT"
"""The environment variables of every process that an agent starts: the job's directory, and the slot."""

SLOT_BYTES_MAX = 64
JOB_ROOM, ARGUMENTS_ROOM = "." * 1024, "." * 1152
"""The text that initially fills the room: for a job's directory, and for a command line that includes it."""


def make_room() -> bool:
    """Execute this program again, with room; return True in the new program, and False if that is not possible."""
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
    # This applies until signal handlers are installed again.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        os.execve(sys.executable, command, {**os.environ, **pinned_environment(), **marks})
    except OSError:  # the environment already has its largest possible size
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
        return False


def pinned_environment() -> dict[str, str]:
    """Return the variables with which interpreters locate this package and hash strings alike."""
    home = __file__.rpartition(os.sep)[0].rpartition(os.sep)[0].rpartition(os.sep)[0]
    path = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(path)), "PYTHONHASHSEED": "0"}
