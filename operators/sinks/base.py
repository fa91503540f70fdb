"""The contract of a sink: an encoding of records, and a store that writes bundles atomically (D8).

A sink has no downstream to hold its determinants, so its store holds them beside the rows.
"""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from causal.ports import SinkStore
from causal.rows import Rows
from causal.values import NotCarried
from causal.vectors import Vectors


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    raise NotCarried(f"{type(value).__qualname__} cannot be written as JSON")


encode_json: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": "), default=_plain).encode


class Sink(ABC):
    """What `.sink(name, …)` takes."""

    def encode(self, records: Sequence[Any]) -> bytes:
        """The rows of these records, one JSON document per line, each line ended by a newline.

        A surrogate without its other half, which UTF-8 cannot say, is written as its JSON escape.
        """
        return "".join([encode_json(record) + "\n" for record in records]).encode("utf-8", "backslashreplace")

    def encode_rows(self, rows: Rows) -> bytes:
        """What `encode` gives for these tuples."""
        return self.encode(rows.listed() if type(self).encode is not Sink.encode else rows)  # type: ignore[arg-type]

    def encode_vectors(self, vectors: Vectors) -> bytes:
        """What `encode` gives for the rows of `vectors`, made column by column unless that is overridden."""
        from operators.sinks.columns import json_lines
        from operators.sources.arrow_rows import rows_of

        if type(self).encode is not Sink.encode:
            return self.encode(rows_of(vectors.batch, 0, len(vectors)))
        return json_lines(vectors, encode_json)

    @abstractmethod
    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """The store of one sink task; nothing is fenced or read before its `open`."""

    def check(self) -> None:
        """Raise `PipelineError` for what can be known to be wrong before the job starts, e.g. a path."""


def check_writable(directory: Path, sink: str) -> None:
    """Raise `PipelineError` unless a file can be made in `directory`; leaves nothing behind."""
    if not directory.is_dir():
        raise PipelineError(f"{sink}: the directory {directory} does not exist; make it first (mkdir -p {directory})")
    try:
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as problem:
        raise PipelineError(
            f"{sink}: nothing can be written in {directory} ({problem.strerror}); give a path that can be written"
        ) from None
