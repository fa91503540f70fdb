"""The part of a worker's start that is the same for all workers of a job: done once, in the process that forks them.

What it changes in memory they share; each would have a copy of 4 MB of its own otherwise.
"""

from __future__ import annotations

from pathlib import Path

from causal.config import JobConfig
from causal.errors import CausalError
from operators.capture.install import install, look

NAMES = "cp437"
"""The encoding with which `zipfile` reads the names in an archive of code; Python loads it at its first use."""


def prepare(directory: Path) -> None:
    """Do in advance for all workers of the job in a directory what each of them would otherwise do first."""
    "".encode(NAMES)
    look()
    try:
        config = JobConfig.load(directory)
    except CausalError:
        return  # each worker reports that it cannot read it
    install(config.hidden_nondeterminism)
