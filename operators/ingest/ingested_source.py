"""Sources whose input cannot be read twice: a process next to the job stores it in the ingest log first."""

from __future__ import annotations

import os
from abc import abstractmethod
from pathlib import Path
from typing import Any

from causal.process.interpreter import JOB, PYTHON, module_command
from operators.ingest.bound import LogBounds
from operators.ingest.ingest_log import IngestLog
from operators.ingest.place import IngestPlace
from operators.source import Companion, Source, SourceContext


class IngestedSource(Source[Any]):
    """The base class of sources whose records `operators.runtime.ingesting` stores before a task reads them."""

    records_name = "lines"
    """The name of what the process stores, which ends the process's name."""

    partitions = 1
    everywhere = False
    """The log that it ingests into is on one host."""

    def check_readable(self, partition: int, position: int, context: SourceContext) -> None:
        """Raise `PipelineError` if the log has released records from `position` on."""
        IngestPlace(context.job_directory, context.name, 1).check_readable(partition, position)

    def lend(self, name: str, job_directory: Path, elsewhere: Path) -> bool:
        """Link the files of the log, so that readers outside the job have no effect on it."""
        from operators.ingest.lending import lend_log  # only a replay needs this module

        lend_log(name, job_directory, elsewhere)
        return True

    def continues(self, earlier: Source[Any]) -> bool:
        """Return whether both have the same type and options, wherever they were declared."""
        return type(self) is type(earlier) and {**vars(self), "_where": ""} == {**vars(earlier), "_where": ""}

    def companions(self, name: str, job_directory: Path) -> list[Companion]:
        """Return the process that writes the log.

        Its arguments include the process id of `causal run`, which owns the terminal.
        """
        _, *arguments = module_command("operators.runtime.ingesting", JOB, name, str(os.getpid()))
        return [Companion(f"{name}-{self.records_name}", [PYTHON, *arguments])]

    @abstractmethod
    def store(self, log: IngestLog, bounds: LogBounds, job_directory: Path, root_pid: int) -> None:
        """Write the input to the log, within its bounds, until the input ends."""


def log_of(job_directory: Path, name: str) -> IngestLog:
    """Return the ingest log of the source named `name`, for writing."""
    return IngestPlace(job_directory, name, 1).open()
