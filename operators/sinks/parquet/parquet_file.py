"""A Parquet file that is still growing, under a name that readers skip.

Its metadata identifies its rows: the run, the task, the position of the first row, the position after the last row, and
the positions in between that have no row because the store refused it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from causal.storage.modes import mode_of_files, opened

GROUP_BYTES = 4 << 20
"""The bytes of rows, in Arrow's form, that are written together."""
_KEY = b"causal"


class PartFile:
    """A file that contains the rows from position `first` on and that no reader sees."""

    def __init__(self, path: Path, schema: pa.Schema, compression: str, first: int) -> None:
        self.path = path
        self.first = first
        self.next = first
        self.bytes = 0
        """The bytes of all rows, in Arrow's form."""
        self._schema = schema
        self._refused: list[int] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        os.close(opened(path, os.O_WRONLY, mode_of_files()))
        self._file = pa.OSFile(str(path), "wb")
        try:
            self._writer = pq.ParquetWriter(self._file, schema, compression=compression)
        except BaseException:
            self._file.close()
            raise

    def add(self, next_: int, batches: Sequence[pa.RecordBatch], refused: Sequence[int]) -> None:
        """Add the rows up to `next_`; `refused` contains the positions without a row."""
        size = sum(batch.nbytes for batch in batches)
        self._waiting += batches
        self._waiting_bytes += size
        self._refused += refused
        self.next = next_
        self.bytes += size
        if self._waiting_bytes >= GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._waiting_bytes = [], 0

    def finish(self, run: str, task: str, sync: bool) -> None:
        """Write the waiting rows and the footer, which completes the file."""
        try:
            self._write()
            description = {"run": run, "task": task, "first": self.first, "next": self.next, "refused": self._refused}
            self._writer.add_key_value_metadata({_KEY.decode(): json.dumps(description)})
            self._writer.close()
        finally:
            self._let_go()
        if sync:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def drop(self) -> None:
        """Close the file and remove it."""
        self._let_go()
        self.path.unlink(missing_ok=True)

    def _let_go(self) -> None:
        self._writer.is_open = False  # otherwise, the ParquetWriter would write a footer when it is garbage-collected
        if not self._file.closed:
            self._file.close()


def packed(
    batches: Sequence[pa.RecordBatch], schema: pa.Schema, compression: str, description: dict[str, Any]
) -> bytes:
    """Return the bytes of a whole file with these rows, and with metadata that identifies them."""
    stream = pa.BufferOutputStream()
    with pq.ParquetWriter(stream, schema, compression=compression) as writer:
        if batches:
            writer.write_table(pa.Table.from_batches(batches, schema))
        writer.add_key_value_metadata({_KEY.decode(): json.dumps(description)})
    return bytes(stream.getvalue())


def description_of(path: Path | pa.BufferReader) -> dict[str, Any] | None:
    """Return the metadata that identifies a file's rows, or None if it is not a complete file written by a sink."""
    try:
        metadata = pq.read_metadata(path).metadata or {}
        description = json.loads(metadata[_KEY])
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None
    return description if isinstance(description, dict) else None
