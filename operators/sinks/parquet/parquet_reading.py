"""A reader of the complete output of a `ParquetSink` at any moment: rows in the manifest's files, and in journals.

Reading blocks no writer and changes nothing. A journal is read before the manifest, so rows that are moved in the
meantime appear in both places rather than in neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from causal.errors import CorruptData, PipelineError
from causal.storage.framing import bodies
from operators.sinks.journaled.ledger import Entry, Ledger, covered
from operators.sinks.objects.object_place import connected, shared_url
from operators.sinks.objects.object_reading import ObjectOutput
from operators.sinks.parquet.bundle_columns import batches_of
from operators.sinks.parquet.manifest import OURS, Manifest, file_name, load_manifest
from operators.sinks.parquet.parquet_file import description_of
from operators.sinks.parquet.stored_schema import stored_schema

Located = tuple[pa.Array, pa.RecordBatch]
"""A pair of positions (int64) and the rows there."""


class ParquetOutput:
    """A reader of one directory; it never reads the same part of a journal twice."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory).absolute()
        self._tails: dict[Path, JournalTail] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._manifest = Manifest("")

    def look(self) -> None:
        """Read the rows that are present now.

        Raises:
            PipelineError: no sink has written to the directory.
            CorruptData: a file is damaged; the message names it.
        """
        tails = {}
        ledgers = {}
        for path in sorted((self.directory / OURS).glob("*.journal")):
            tails[path] = self._tails.get(path) or JournalTail(path)
            try:
                ledger = tails[path].ledger()
            except FileNotFoundError:
                continue
            ledgers[ledger.account.task] = ledger
        manifest = load_manifest(self.directory)
        if manifest is None:
            raise PipelineError(f"{self.directory} was not written by a ParquetSink; use the directory of one")
        # Skip the journals of other runs: the directory is being emptied for a new run.
        self._ledgers = {task: ledger for task, ledger in ledgers.items() if ledger.account.run == manifest.run}
        for task, ledger in self._ledgers.items():
            ledger.publish(manifest.end_of(task))
        self._tails, self._manifest = tails, manifest

    @property
    def run(self) -> str:
        """The run that wrote the rows."""
        return self._manifest.run

    @property
    def ended(self) -> bool:
        """Whether every task has written its last row."""
        return bool(self._ledgers) and all(ledger.account.ended for ledger in self._ledgers.values())

    @property
    def schema(self) -> pa.Schema | None:
        """The schema, or None while there are no rows."""
        return self._manifest.schema

    def ends(self, uncovered: bool) -> dict[str, int]:
        """Return the end of the readable rows of each task.

        Args:
            uncovered: whether to include rows that may still be withdrawn, below full sharing depth.
        """
        ends = {task: ranges[-1][1] for task, ranges in self._manifest.files.items() if ranges}
        for task, ledger in self._ledgers.items():
            ends[task] = max(ends.get(task, 0), ledger.account.next if uncovered else covered(ledger.account))
        return ends

    def withdrawn(self) -> dict[str, int]:
        """Return the number of rows ever withdrawn by task."""
        return {task: ledger.account.withdrawn for task, ledger in self._ledgers.items()}

    def hint(self, task: str, position: int) -> Any:
        """Return None: no hint is needed, because files are named after positions."""
        return None

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Iterator[Located]:
        """Yield a task's rows from position `start` up to `stop`, in order, as they were at the last call of `look`."""
        for first, next_ in self._manifest.files.get(task, []):
            if first < stop and start < next_:
                path = self.directory / file_name(task, first, next_)
                yield from rows_of_file(path, path, first, next_, start, stop)
        for entry in self._ledgers[task].entries if task in self._ledgers else ():
            if entry.first < stop and start < entry.next:
                yield from rows_of_entry(entry, self.schema, start, stop)


class JournalTail:
    """A journal that is read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = (0, 0)
        self._sound = 0
        self._ledger: Ledger | None = None

    def ledger(self) -> Ledger:
        with open(self._path, "rb") as journal:
            status = os.fstat(journal.fileno())
            if self._ledger is None or self._file != (status.st_dev, status.st_ino) or status.st_size < self._sound:
                self._ledger, self._sound, self._file = None, 0, (status.st_dev, status.st_ino)
            journal.seek(self._sound)
            records, sound = bodies(journal.read(), self._path)
        if self._ledger is None:
            self._ledger = Ledger.of(records, self._path)
        else:
            self._ledger.feed(records, self._path)
        self._sound += sound
        return self._ledger


def rows_of_entry(entry: Entry, schema: pa.Schema | None, start: int, stop: int) -> Iterator[Located]:
    """Yield the rows of a pending bundle from `start` up to `stop`."""
    batches = batches_of(entry.bundle.rows, entry.first, entry.refused, schema)
    if batches:
        whole = pa.Table.from_batches(batches).combine_chunks()
        yield from _within(_positions(entry.first, entry.next, entry.refused), whole, start, stop)


def rows_of_file(
    path: Path | pa.BufferReader, shown: object, first: int, next_: int, start: int, stop: int
) -> Iterator[Located]:
    """Yield the rows from `start` up to `stop` of a file that contains the rows from `first` up to `next_`.

    Raises:
        CorruptData: the file is damaged; the message calls it `shown`.
    """
    description = description_of(path)
    if description is None:
        raise CorruptData(f"{shown} is missing or damaged; restore it, or start a new run elsewhere")
    positions = _positions(first, next_, description["refused"])
    with pq.ParquetFile(path) as file:
        if file.metadata.num_rows != len(positions):
            raise CorruptData(f"{shown} has {file.metadata.num_rows} rows, not {len(positions)}; restore it")
        place = 0
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            here = positions[place : place + size]
            place += size
            if size and here[0] < stop and start <= here[-1]:
                yield from _within(here, file.read_row_group(group), start, stop)


def _within(positions: np.ndarray, rows: pa.Table, start: int, stop: int) -> Iterator[Located]:
    low, high = np.searchsorted(positions, [start, stop])
    place = low
    for batch in rows.slice(low, high - low).to_batches():
        yield pa.array(positions[place : place + batch.num_rows]), batch
        place += batch.num_rows


def _positions(first: int, next_: int, refused: object) -> np.ndarray:
    return np.setdiff1d(np.arange(first, next_, dtype=np.int64), np.array(refused, np.int64), assume_unique=True)


def table_of(output: Any, uncovered: bool) -> pa.Table:
    """Return all rows from a reader of Parquet output as of its last `look`, ordered by task and position."""
    schema = pa.schema([]) if output.schema is None else output.schema
    ends = output.ends(uncovered)
    batches = [batch for task in sorted(ends) for _, batch in output.rows(task, 0, ends[task])]
    return pa.Table.from_batches(batches, schema)


def read(directory: str | os.PathLike[str], uncovered: bool = True) -> pa.Table:
    """Return all rows that a `ParquetSink` has written so far, each exactly once, ordered by task and position.

    Args:
        directory: the sink's directory, or the URL of a place in a shared store.
        uncovered: whether to include rows that may still be withdrawn, which happens only below full sharing depth.
    """
    url = shared_url("read", directory, None)
    output = ObjectParquetOutput(connected(url)) if url else ParquetOutput(directory)
    output.look()
    return table_of(output, uncovered)


class ObjectParquetOutput(ObjectOutput):
    """A reader of Parquet objects in a shared store."""

    schema: pa.Schema | None = None

    def look(self) -> None:
        """See `operators.outputs.output.Output.look`."""
        super().look()
        self.schema = stored_schema(self._depot, self.run)

    def _of_object(self, stored: bytes, name: str, first: int, next_: int, start: int, stop: int) -> Iterator[Located]:
        yield from rows_of_file(pa.BufferReader(stored), f"{self._depot.url}: {name}", first, next_, start, stop)

    def _of_bundle(self, entry: Entry, start: int, stop: int) -> Iterator[Located]:
        yield from rows_of_entry(entry, self.schema, start, stop)
