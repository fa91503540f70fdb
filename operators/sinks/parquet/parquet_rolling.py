"""The movement of rows from a journal to Parquet files, by way of a hidden file that is named once complete.

A complete file first receives its name and is then listed in the manifest, both under the directory's lock. If the
process dies in between, the complete file is not listed, and its rows are also in the journal; the next process that
opens the store adds the file to the manifest.
"""

from __future__ import annotations

import os
import time

import pyarrow as pa

from causal.errors import CorruptData, fenced
from causal.storage.files import sync_directory
from operators.sinks.contract.account import check_newest
from operators.sinks.journaled.ledger import Entry, Ledger, covered
from operators.sinks.parquet.bundle_columns import batches_of
from operators.sinks.parquet.manifest import (
    OURS,
    Manifest,
    file_name,
    holding_directory,
    load_manifest,
    rows_in,
    stem_of,
    store_manifest,
)
from operators.sinks.parquet.parquet_file import GROUP_BYTES, PartFile, description_of
from operators.sinks.parquet.parquet_settings import ParquetSettings


class Rolling:
    """The files of one sink task, as written by the incarnation that owns the task's journal."""

    def __init__(self, settings: ParquetSettings, task: str, run: str, incarnation: int) -> None:
        self._settings = settings
        self._task = task
        self._run = run
        self._incarnation = incarnation
        self._directory = settings.directory
        self._growing: PartFile | None = None
        self._complete: list[PartFile] = []
        self._waiting_since_s: float | None = None
        """The arrival of the oldest row that is in no complete file, in monotonic time."""

    def clear(self) -> None:
        """Remove hidden files of this task that an earlier process did not remove."""
        for left in sorted((self._directory / OURS).glob("*.part")):
            if left.name.rsplit("-", 3)[0] == stem_of(self._task):
                left.unlink(missing_ok=True)

    @property
    def holding(self) -> bool:
        """Whether any hidden file contains rows."""
        return self._growing is not None or bool(self._complete)

    def drop(self) -> None:
        """Remove the hidden files; their rows will be read from the journal again."""
        parts = [*self._complete, *([self._growing] if self._growing is not None else [])]
        self._growing, self._complete, self._waiting_since_s = None, [], None
        for part in parts:
            part.drop()

    def adopt(self, ledger: Ledger) -> None:
        """Add files that a dead process named but did not list to the manifest, and remove files that do not fit."""
        with holding_directory(self._directory, self._settings.busy_ms):
            manifest = self.manifest()
            named = len(manifest.files.get(self._task, []))
            for path in sorted(self._directory.glob(f"{stem_of(self._task)}-*.parquet")):
                place = rows_in(path.name, self._task)
                if place is None or place[1] <= manifest.end_of(self._task):
                    continue
                description = description_of(path) or {}
                follows = place[0] == manifest.end_of(self._task) and place[1] <= ledger.account.next
                if follows and (description.get("run"), description.get("first"), description.get("next")) == (
                    self._run,
                    *place,
                ):
                    manifest.files.setdefault(self._task, []).append(place)
                else:
                    path.unlink()
            if len(manifest.files.get(self._task, [])) > named:
                store_manifest(self._directory, manifest, self._settings.durability == "os")
        ledger.publish(manifest.end_of(self._task))

    def manifest(self) -> Manifest:
        """Return the manifest; raise `Fenced` if it does not belong to this run."""
        manifest = load_manifest(self._directory)
        if manifest is not None:
            check_newest(self._directory, self._run, manifest.run)
        if manifest is None or manifest.run != self._run:
            raise fenced(self._task, self._incarnation)
        return manifest

    def due(self, ledger: Ledger) -> bool:
        """Return whether the oldest row has waited long enough to be published."""
        if self._waiting_since_s is None and ledger.entries:
            self._waiting_since_s = time.monotonic()
        since_s = self._waiting_since_s
        return since_s is not None and time.monotonic() - since_s >= self._settings.publish_s

    def advance(self, ledger: Ledger, schema: pa.Schema | None) -> bool:
        """Move a bounded number of rows to files, or more if a file is due; return whether a file received its name."""
        below = covered(ledger.account)
        if ledger.row_bytes >= GROUP_BYTES:
            left = ledger.row_bytes - GROUP_BYTES
            while ledger.entries and ledger.row_bytes > left:
                self._hide(ledger.shift(), schema)
        if self.due(ledger):
            self._settle(ledger, schema, below)
        elif self._growing is not None and self._growing.bytes >= self._settings.file_bytes:
            self._finish()
        return self._name(ledger, below)

    def publish(self, ledger: Ledger, schema: pa.Schema | None, below: int) -> bool:
        """Move the rows below the given position to named files, and return whether any file received its name.

        Rows that share a hidden file with later rows are not moved.
        """
        self._settle(ledger, schema, below)
        return self._name(ledger, below)

    def _settle(self, ledger: Ledger, schema: pa.Schema | None, below: int) -> None:
        """Complete the hidden file, with the rows up to the given position unless it already extends further."""
        if self._growing is None or self._growing.next <= below:
            while ledger.entries and ledger.entries[0].next <= below:
                self._hide(ledger.shift(), schema)
        self._finish()

    def _hide(self, entry: Entry, schema: pa.Schema | None) -> None:
        """Move the rows of a bundle to the hidden file."""
        batches = entry.columns
        if batches is None:
            batches = batches_of(entry.bundle.rows, entry.first, entry.refused, schema)
        if self._growing is None:
            self._growing = self._begun(entry.first, pa.schema([]) if schema is None else schema)
        self._growing.add(entry.next, batches, entry.refused)

    def _begun(self, first: int, schema: pa.Schema) -> PartFile:
        name = f"{stem_of(self._task)}-{first:012d}-{self._incarnation}-{os.getpid()}.part"
        return PartFile(self._directory / OURS / name, schema, self._settings.compression, first)

    def _finish(self) -> None:
        part, self._growing = self._growing, None
        if part is not None:
            self._waiting_since_s = None
            self._complete.append(part)
            part.finish(self._run, self._task, self._settings.durability == "os")

    def _name(self, ledger: Ledger, below: int) -> bool:
        """Rename the complete files whose rows are final to their final names, so that readers see them."""
        due = [part for part in self._complete if part.next <= below]
        if not due:
            return False
        sync = self._settings.durability == "os"
        with holding_directory(self._directory, self._settings.busy_ms):
            manifest = self.manifest()
            for part in due:
                if part.first != manifest.end_of(self._task):
                    raise CorruptData(
                        f"{self._directory}: a file of {self._task} is missing or overlaps another; restore the "
                        "directory"
                    )
                os.replace(part.path, self._directory / file_name(self._task, part.first, part.next))
                manifest.files.setdefault(self._task, []).append((part.first, part.next))
            if sync:
                sync_directory(self._directory)
            store_manifest(self._directory, manifest, sync)
        self._complete = self._complete[len(due) :]
        ledger.publish(manifest.end_of(self._task))
        return True
