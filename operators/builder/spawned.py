"""Loads a job's code in a child that `multiprocessing` spawned from one of the job's processes (see `spawning`)."""

from __future__ import annotations

import os
import sys
from multiprocessing import current_process
from pathlib import Path

from causal.config import JobConfig
from causal.errors import CausalError
from operators.builder.loading import load_of_job
from operators.builder.spawning import JOB


def load_lent() -> None:
    """Load the job's code; exit with a one-line message if the code cannot be loaded."""
    job = Path(os.environ[JOB])
    try:
        load_of_job(job, JobConfig.load(job), lasting=True)
    except (CausalError, OSError) as problem:
        print(
            f"{current_process().name}, a child of {os.getppid()} by multiprocessing, cannot load the code of its job: "
            f"{problem}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        sys.exit(1)


if __name__ == "__mp_main__":
    load_lent()
