"""The command by which a process starts another one: by module, without the working directory on `sys.path`."""

from __future__ import annotations

import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """Returns the command line that runs a module of this package.

    `-P`: a file `queue.py` or `operators.py` in the working directory must not be imported.
    """
    return [sys.executable, "-P", "-m", module, *arguments]
