"""Reserves space for the command lines and marks of forked processes, as shown in `/proc`.

Both are stored in memory that a process receives when it executes a program and that forked processes can only
overwrite. `causal run` therefore executes itself a second time before it loads anything, with space for both. The
second execution also has the settings that the interpreters of a job's processes must share: the same string hashes,
and no working directory on `sys.path`.
"""

from __future__ import annotations

import os
import signal
import sys

JOB_MARK, SLOT_MARK = "CAUSAL_JOB", "CAUSAL_SLOT"
"""The environment variables of every process that an agent starts: the job directory and the slot."""

FOLLOWED = "CAUSAL_FOLLOWED"
"""The environment variable with which `causal run` executes itself once more, in order to follow the job that it
contains."""

HASH_SEED = "0"
"""The value of PYTHONHASHSEED in each process of a job."""

SLOT_BYTES_MAX = 64
JOB_ROOM, ARGUMENTS_ROOM = "." * 1024, "." * 1152
"""The text that initially fills the space for a job directory, and for a command line that contains it."""


def make_room() -> bool:
    """Execute this program again with reserved space; return True in the new program, or False if that is
    impossible.
    """
    if os.environ.get(JOB_MARK) == JOB_ROOM and sys.argv[-1] == ARGUMENTS_ROOM:
        for name in (JOB_MARK, SLOT_MARK):
            os.environ.pop(name, None)
        sys.argv.pop()
        sys.orig_argv.pop()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
        return True
    arguments = sys.argv[1:]
    if JOB_MARK in os.environ or sys.orig_argv[len(sys.orig_argv) - len(arguments) :] != arguments:
        return False  # a process of a job keeps that job's marks, or another program has imported this one
    command = [sys.orig_argv[0], *([] if sys.flags.safe_path else ["-P"]), *sys.orig_argv[1:], ARGUMENTS_ROOM]
    marks = {JOB_MARK: JOB_ROOM, SLOT_MARK: "." * SLOT_BYTES_MAX}
    # The signals stay blocked until the new program has started and unblocks them.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        os.execve(sys.executable, command, {**os.environ, **pinned_environment(), **marks})
    except OSError:  # the environment has already reached its size limit
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
        return False


def pin_hashes() -> None:
    """Execute this program again with the string hashes that all processes of a job have, unless it has them."""
    arguments = sys.argv[1:]
    if os.environ.get("PYTHONHASHSEED") == HASH_SEED:
        return
    if sys.orig_argv[len(sys.orig_argv) - len(arguments) :] == arguments:  # otherwise another program has imported this
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": HASH_SEED})


def pinned_environment() -> dict[str, str]:
    """Return the variables that make interpreters find this package and hash strings identically."""
    home = __file__.rpartition(os.sep)[0].rpartition(os.sep)[0].rpartition(os.sep)[0]
    path = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(path)), "PYTHONHASHSEED": HASH_SEED}
