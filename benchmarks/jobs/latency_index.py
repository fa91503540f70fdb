"""The pipeline of `latency`: the inverted index of `examples/inverted_index.py` at a steady rate, without Spark.

Document d is due d intervals after the source was ready to read, whatever is late; the two partitions take turns.
That moment is in a file, so that who measures and every later process of the source count from the same one.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # `causal run` puts only this file's directory there

from benchmarks.peers.programs.index_documents import name_of, texts
from examples.inverted_index import Index, words
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.source import PartitionReader, SourceContext
from operators.sources import SequenceSource

PARTITIONS = 2
DUE_FROM = "due_from"
"""The file in the job's directory with the time, in monotonic ns, at which the first document was due."""


def due_from_ns(directory: Path) -> int:
    """Return the time at which the first document of the job in that directory was due.

    Raises:
        FileNotFoundError: its source is not ready.
    """
    return int((directory / DUE_FROM).read_text())


def _set_due_from(directory: Path, moment_ns: int) -> int:
    """Return the time that the first caller has set."""
    written = directory / f"{DUE_FROM}.{os.getpid()}"
    written.write_text(str(moment_ns))
    with suppress(FileExistsError):
        os.link(written, directory / DUE_FROM)
    written.unlink()
    return due_from_ns(directory)


class Documents(SequenceSource[dict[str, str]]):
    """Every second document from the partition's own on, read from disk before the first one enters."""

    def __init__(self, count: int, rate: float) -> None:
        super().__init__(self.texts, count // PARTITIONS, PARTITIONS, rate)
        self._documents = count
        self._texts: list[str] = []

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """Partition p begins p intervals later than the first."""
        if not self._texts:
            self._texts = texts(self._documents)
        # Not from when the job began: reading the texts takes seconds, in which documents would be due and wait.
        began_ns = _set_due_from(context.job_directory, time.monotonic_ns())
        later_ns = int(partition / (self.rate or 1.0) * 1e9)
        return super().open(partition, replace(context, began_ns=began_ns + later_ns))

    def texts(self, partition: int, start: int, stop: int) -> list[dict[str, str]]:
        """Return documents `start` to `stop` of a partition."""
        numbers = range(start * PARTITIONS + partition, stop * PARTITIONS, PARTITIONS)
        return [{"name": name_of(number), "text": self._texts[number]} for number in numbers]


pipeline = Pipeline("latency-index")
settings = pipeline.settings
count = int(settings.get("count", "100"))
rate = float(settings.get("rate", "50"))

(
    pipeline.source("documents", Documents(count, rate))
    .flat_map("words", words)
    .key_by(lambda record: record[0])
    .process("index", Index(), parallelism=2)
    .sink("changes", SqliteSink(settings.get("out", "index.db")))
)
