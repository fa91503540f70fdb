"""The standard streams of the `causal` command, prepared so that no command ends because a stream is closed or fails.

Text for a standard error that cannot be written is discarded.  A command whose result is its standard output fails if
that output cannot be written, but `causal run` does not fail.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import IO, Any


class _Lossy(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def prepare() -> None:
    """Redirect closed standard streams to the null device, and prevent errors from standard error."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            # The new descriptor is the lowest free one, so it replaces the closed one.  A closed input must not look
            # like an empty one, so reading it fails.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR if descriptor else os.O_WRONLY), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, closefd=False))
    errors = io.BufferedWriter(_Lossy(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(errors, sys.stderr.encoding, "backslashreplace", line_buffering=True)


def settle(stream: IO[Any]) -> None:
    """Write the remaining buffered text, or discard it if that fails, so that the interpreter does not try again at
    exit.
    """
    try:
        stream.flush()
    except OSError:
        with suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def show(line: str) -> int:
    """Print a line that is the entire result of a command; return the exit status."""
    try:
        print(line, flush=True)
        return 0
    except OSError as problem:
        settle(sys.stdout)
        if not isinstance(problem, BrokenPipeError):
            print(f"causal: the system: {problem.strerror}", file=sys.stderr)
        return 1
