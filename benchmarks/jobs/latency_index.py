"""The pipeline of `latency`: the inverted index of `examples/inverted_index.py` at a steady rate, without Spark.

Documents are `*.py` files of the Python standard library, whole, in an order of chance that is always the same.
Document d is due d intervals after the source was ready to read, whatever is late; the two partitions take turns.
That moment is in a file, so that who measures and every later process of the source count from the same one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # `causal run` puts only this file's directory there

from benchmarks.peers.programs import inputs
from examples.corpus import STANDARD_LIBRARY, postings
from examples.inverted_index import Index, words
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import SequenceSource
from operators.sources.source import PartitionReader, SourceContext

PARTITIONS = 2
CORPUS = Path(STANDARD_LIBRARY)
DUE_FROM = "due_from"
"""The file in the job's directory with the time, in monotonic ns, at which the first document was due."""
EMPTY_MAX = 100
"""More than there are empty files."""


def name_of(number: int) -> str:
    """Returns what the change records of a document call it."""
    return f"document-{number}"


def texts(count: int) -> list[str]:
    """The first `count` documents that are not empty.

    Raises:
        ValueError: there are not so many.
    """
    whole = [text for text in inputs.documents(CORPUS, count + EMPTY_MAX) if text.strip()][:count]
    if len(whole) < count:
        raise ValueError(f"the standard library has {len(whole)} documents; {count} are wanted: give fewer seconds")
    return whole


def due_from_ns(directory: Path) -> int:
    """Returns the time at which the first document of the job in that directory was due.

    Raises:
        FileNotFoundError: its source is not ready.
    """
    return int((directory / DUE_FROM).read_text())


def _set_due_from(directory: Path, moment_ns: int) -> int:
    """Returns the time that the first caller has set."""
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
        """Documents `start` to `stop` of a partition."""
        numbers = range(start * PARTITIONS + partition, stop * PARTITIONS, PARTITIONS)
        return [{"name": name_of(number), "text": self._texts[number]} for number in numbers]


def expected(count: int) -> list[dict[str, list[int]]]:
    """Returns word → positions for each document, computed the plain way."""
    return [postings(text) for text in texts(count)]


def wrong(rows: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, int]:
    """Returns faults of the rows by kind; a row contradicts the one before it of its word, or its document.

    Args:
        documents: as `expected` gives them.
    """
    by_name = {name_of(number): index for number, index in enumerate(documents)}
    seen: dict[tuple[str, str], int] = {}
    counts: dict[str, tuple[int, int]] = {}
    contradicted = 0
    for row in rows:
        term, name = row["word"], row["document"]
        seen[term, name] = seen.get((term, name), 0) + 1
        before, occurrences = counts.get(term, (0, 0))
        counts[term] = (row["documents"], row["occurrences"])
        follows = counts[term] == (before + 1, occurrences + len(row["positions"]))
        contradicted += not follows or by_name[name].get(term) != row["positions"]
    due = sum(len(index) for index in documents)
    return {"lost": due - len(seen), "doubled": len(rows) - len(seen), "contradicted": contradicted}


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
