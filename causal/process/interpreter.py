"""The command by which a process starts another one: by module, without the working directory on `sys.path`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

PYTHON, JOB = "{python}", "{job}"
"""The words of a command line that stand for the Python and the job's directory of the host that will run it."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of this package.

    `-P`: a file `queue.py` or `operators.py` in the working directory must not be imported.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def on_this_host(argv: Sequence[str], job: Path) -> tuple[str, ...]:
    """Return the command line with the Python of this process and the job's directory of this host in the place of
    words.
    """
    here = {PYTHON: sys.executable, JOB: str(job)}
    return tuple(here.get(argument, argument) for argument in argv)
