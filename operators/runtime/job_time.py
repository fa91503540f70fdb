"""A reader on a host whose clock is not the supervisor's: what it reads is stamped in the job's time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from causal.shell.clock import of_job


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
