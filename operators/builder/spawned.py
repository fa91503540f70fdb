"""Loads the code of a job in a child that `multiprocessing` spawned in one of its processes (`spawning`)."""

from __future__ import annotations

import os
from pathlib import Path

from causal.config import JobConfig
from operators.builder.loading import load_of_job
from operators.builder.spawning import JOB

if __name__ == "__mp_main__":
    _job = Path(os.environ[JOB])
    load_of_job(_job, JobConfig.load(_job), lasting=True)
