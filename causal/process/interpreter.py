"""The command with which a process starts another one: by module, without the working directory on `sys.path`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

PYTHON, JOB = "{python}", "{job}"
"""The placeholders in a command line for the Python interpreter and job directory of the host that will run it."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of this package.

    The option `-P` prevents the import of a file such as `queue.py` or `operators.py` in the working directory.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def on_this_host(argv: Sequence[str], job: Path) -> tuple[str, ...]:
    """Return the command line with this process's Python and this host's job directory instead of the placeholders."""
    here = {PYTHON: sys.executable, JOB: str(job)}
    return tuple(here.get(argument, argument) for argument in argv)
