"""The part of a worker's start that is the same for all workers of a job, performed once, before they are forked.

The workers share the memory that it changes; otherwise each of them would have its own copy of 4 MB.
"""

from __future__ import annotations

from pathlib import Path

from causal.config import JobConfig
from causal.errors import CausalError
from operators.capture.install import install, look

NAMES = "cp437"
"""The encoding with which `zipfile` reads the names in an archive of code; Python loads it at its first use."""


def prepare(directory: Path) -> None:
    """Perform in advance the initialization that every worker of the job would otherwise perform first."""
    "".encode(NAMES)
    look()
    try:
        config = JobConfig.load(directory)
    except CausalError:
        return  # each worker reports that it cannot read the configuration
    install(config.hidden_nondeterminism)
