"""The standard streams of the `causal` command: no command ends because they cannot be written.

What is written on standard error while that is impossible is dropped.  A command whose result is its standard output
fails with it; `causal run` does not.
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
    """Has standard error never fail."""
    errors = io.BufferedWriter(_Lossy(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(errors, sys.stderr.encoding, "backslashreplace", line_buffering=True)


def settle(stream: IO[Any]) -> None:
    """Writes what is left, or has it lead nowhere if that fails: at its end the interpreter tries again."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
