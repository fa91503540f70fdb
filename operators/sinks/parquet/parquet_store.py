"""The store of one task of a `ParquetSink`: bundles are written to its journal and later moved to files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from causal.errors import CorruptData
from causal.ports import WithdrawPoint
from causal.storage.file_journal import FileJournal
from causal.storage.files import sync_directory
from causal.storage.modes import ensure_directory, mode_of_directories, mode_of_files
from operators.sinks.journaled.ledger import Ledger, claim_record, ledger_in
from operators.sinks.journaled.rolling_store import RollingStore
from operators.sinks.parquet.bundle_columns import FittedColumns
from operators.sinks.parquet.claim_directory import make_room
from operators.sinks.parquet.manifest import OURS, holding_directory, stem_of, store_manifest
from operators.sinks.parquet.parquet_rolling import Rolling
from operators.sinks.parquet.parquet_settings import ParquetSettings


class ParquetStore(FittedColumns, RollingStore):
    """The store of one sink task's rows, in a journal and Parquet files. Only one thread may use it at a time."""

    _journal: FileJournal

    def __init__(self, settings: ParquetSettings, task: str) -> None:
        self._settings, self._names = settings, settings.columns
        self._directory = settings.directory
        self._rolling = Rolling(settings, task, "", -1)
        path, sync = journal_path(settings.directory, task), settings.durability == "os"
        lock = path.with_suffix(".lock")
        journal = FileJournal(task, path, lock, settings.directory, settings.busy_ms, sync, mode_of_files())
        super().__init__(task, journal, settings.directory)

    @contextmanager
    def _room(self) -> Iterator[None]:
        self._rolling = Rolling(self._settings, self._task, self._run, self._incarnation)
        self._check_there(self._directory / OURS)
        ensure_directory(self._directory, mode_of_directories())
        ensure_directory(self._directory / OURS, mode_of_directories())
        if self._journal.sync:
            sync_directory(self._directory)
            sync_directory(self._directory.parent)
        with holding_directory(self._directory, self._settings.busy_ms):
            make_room(self._settings, self._run)
        yield

    def _claim(self) -> Ledger:
        ledger = super()._claim()
        self._rolling.clear()
        return ledger

    def _sign(self, ledger: Ledger) -> None:
        self._journal.append(claim_record(self._incarnation))  # appended, because a rewrite would copy all pending rows

    def _begin(self) -> None:
        manifest = self._rolling.manifest()
        if manifest.end_of(self._task):
            raise CorruptData(f"{self._journal.path} is missing; restore it, or start a new run elsewhere")
        self._schema = manifest.schema

    def _settle(self, ledger: Ledger) -> None:
        manifest = self._rolling.manifest()
        end = manifest.end_of(self._task)
        ledger.publish(end)
        following = ledger.entries[0].first if ledger.entries else ledger.account.next
        if end > ledger.account.next or following != end:
            raise CorruptData(f"{self._journal.path} does not continue where the files end, at {end}; restore it")
        self._schema = manifest.schema
        self._rolling.adopt(ledger)

    def _agreed(self, schema: pa.Schema) -> pa.Schema:
        with holding_directory(self._directory, self._settings.busy_ms):
            manifest = self._rolling.manifest()
            if manifest.schema is None:
                manifest.schema = schema
                store_manifest(self._directory, manifest, self._journal.sync)
        return manifest.schema

    def _due(self, ledger: Ledger) -> bool:
        return self._rolling.due(ledger)

    def _published(self, ledger: Ledger) -> int:
        return self._rolling.manifest().end_of(self._task)

    def _publish_below(self, ledger: Ledger, below: int) -> None:
        if self._rolling.publish(ledger, self._schema, below) and self._journal.has_grown:
            self._renew(ledger)

    def _retract(self, ledger: Ledger, mark: WithdrawPoint) -> None:
        super()._retract(ledger, mark)
        self._forget()  # discard the hidden files, which may contain withdrawn rows

    def _go_back(self, ledger: Ledger, next_: int, digest: int) -> None:
        super()._go_back(ledger_in(self._journal.path), next_, digest)  # rows in hidden files are pending there
        self._forget()

    def _make_way(self, ledger: Ledger) -> None:
        """Move rows to files, and rewrite the journal if it has grown too large with rows that are already in files."""
        named = self._rolling.advance(ledger, self._schema)
        if self._journal.is_due(0 if named else self._settings.file_bytes):
            self._renew(ledger)

    def _renew(self, ledger: Ledger) -> None:
        if self._rolling.holding:  # rows in hidden files are still pending
            ledger = ledger_in(self._journal.path)
            ledger.publish(self._rolling.manifest().end_of(self._task))
        super()._renew(ledger)

    def _forget(self) -> None:
        super()._forget()
        self._rolling.drop()


def journal_path(directory: Path, task: str) -> Path:
    """Return the path of a task's journal."""
    return directory / OURS / f"{stem_of(task)}.journal"
