"""Rows for people: `causal run` prints them on its standard output, each once, also when tasks are killed."""

from __future__ import annotations

from pathlib import Path

from causal.ports import SinkStore
from operators.sinks.base import Sink
from operators.sinks.jsonlines import JsonLinesSink

CONSOLE = "console"
"""Where in the directory of a job the rows are, in a `.jsonl` file per sink task, until the job is started anew."""


class ConsoleSink(Sink):
    """A sink whose rows `causal run` prints as JSON, a line each.

    Tasks run in processes without a terminal.  They write their rows, as `JsonLinesSink` does, into the directory of
    the job, and `causal run` follows the files.  A row is printed once, by `--resume` too what was not printed before;
    twice only if `causal run` itself was killed in between.  Rows of one task come in order.  All rows stay in the
    directory of the job: for large outputs take another sink.
    """

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """The store of one sink task, in the directory of the job."""
        return JsonLinesSink(job_directory / CONSOLE).open_store(task, job_directory)
