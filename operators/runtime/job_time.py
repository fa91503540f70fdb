"""The job's time: when it began to read, and a reader on a host whose clock is not the supervisor's."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from causal.shell.clock import monotonic_ns, of_job


def began_ns(job_directory: Path) -> int:
    """Returns the time at which the job began to read; the first process of a host writes it."""
    path = job_directory / "began"
    try:
        with open(path, "x") as file:
            file.write(str(monotonic_ns()))
    except FileExistsError:
        pass
    for _ in range(100):
        text = path.read_text()
        if text:
            return min(int(text), monotonic_ns())
        time.sleep(0.001)
    return monotonic_ns()


class JobTimeReader:
    """The reader of a partition, whose batches say in the job's time when their first record entered."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def read(self, position: int, count_max: int) -> Any:
        """Reads as the reader itself does."""
        batch = self._reader.read(position, count_max)
        return replace(batch, origin_ns=of_job(batch.origin_ns)) if batch is not None else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)
