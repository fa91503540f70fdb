"""How a process of a job starts another one: by module, without the working directory on `sys.path`."""

from __future__ import annotations

import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of ours.

    `-P`: a file `queue.py` or `operators.py` in the working directory is none of this process's business.
    """
    return [sys.executable, "-P", "-m", module, *arguments]
