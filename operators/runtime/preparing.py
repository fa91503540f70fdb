"""The part of a worker's start that is the same for all workers of a job; it runs once, before they are forked.

The workers share the memory that it initializes; otherwise, each of them would have its own copy of 4 MB.
"""

from __future__ import annotations

from pathlib import Path

from causal.config import JobConfig
from causal.errors import CausalError
from operators.capture.install import install, look

NAMES = "cp437"
"""The encoding in which `zipfile` reads the names in a code archive; Python loads it when it is first used."""


def prepare(directory: Path) -> None:
    """Perform the initialization that every worker of the job would otherwise perform for itself."""
    "".encode(NAMES)
    look()
    try:
        config = JobConfig.load(directory)
    except CausalError:
        return  # each worker reports that it cannot read the configuration
    install(config.hidden_nondeterminism)
