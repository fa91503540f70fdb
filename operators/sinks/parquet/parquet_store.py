"""The store of one task of a `ParquetSink`: bundles go to its journal, and from there to files (see `parquet`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from causal.errors import CorruptData, Fenced, PipelineError, Unavailable
from causal.ports import Bundle, WithdrawPoint
from causal.shell.modes import ensure_directory, mode_of_directories, mode_of_files
from operators.sinks.journaled.journaled_store import WithdrawingJournaledStore
from operators.sinks.journaled.ledger import Ledger, claim_record, covered, ledger_in, truncation_record
from operators.sinks.journaled.locked_journal import LockedJournal
from operators.sinks.parquet.bundle_columns import FittedColumns
from operators.sinks.parquet.claim_directory import make_room
from operators.sinks.parquet.manifest import OURS, holding_directory, stem_of, store_manifest
from operators.sinks.parquet.parquet_rolling import Rolling
from operators.sinks.storage.journal import sync_directory

if TYPE_CHECKING:
    from operators.sinks.parquet.parquet_sink import ParquetSink


class ParquetStore(FittedColumns, WithdrawingJournaledStore):
    """The outside world of one sink task, in a journal and Parquet files.  One thread at a time."""

    _journal: LockedJournal

    def __init__(self, sink: ParquetSink, task: str) -> None:
        self._sink = sink
        self._directory = sink.directory
        self._rolling = Rolling(sink, task, "", -1)
        path, sync = journal_path(sink.directory, task), sink.durability == "os"
        lock = path.with_suffix(".lock")
        journal = LockedJournal(task, path, lock, sink.directory, sink.busy_ms, sync, mode_of_files())
        super().__init__(task, journal, sink.directory)

    @contextmanager
    def _room(self) -> Iterator[None]:
        self._rolling = Rolling(self._sink, self._task, self._run, self._incarnation)
        ensure_directory(self._directory, mode_of_directories())
        ensure_directory(self._directory / OURS, mode_of_directories())
        if self._journal.sync:
            sync_directory(self._directory)
            sync_directory(self._directory.parent)
        with holding_directory(self._directory, self._sink.busy_ms):
            make_room(self._sink, self._run)
        yield

    def _claim(self) -> Ledger:
        ledger = super()._claim()
        self._rolling.clear()
        return ledger

    def _sign(self, ledger: Ledger) -> None:
        self._journal.append(claim_record(self._incarnation))  # pending rows may be many: they stay where they are

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

    def _publish(self, ledger: Ledger) -> None:
        """Do nothing: rows wait for others that go to the same file."""

    def _fitted(self, ledger: Ledger, bundle: Bundle) -> list[pa.RecordBatch] | None:
        return self._fitted_to(bundle, ledger.account.next, self._sink.columns)

    def _agreed(self, schema: pa.Schema) -> pa.Schema:
        with holding_directory(self._directory, self._sink.busy_ms):
            manifest = self._rolling.manifest()
            if manifest.schema is None:
                manifest.schema = schema
                store_manifest(self._directory, manifest, self._journal.sync)
        return manifest.schema

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`; rows that have waited for long enough go to a file."""
        if self._ledger is not None and epoch <= self._ledger.account.kept_from and not self._rolling.due(self._ledger):
            return
        with self._locked():
            ledger = self._current()
            if ledger.account.truncate(epoch):
                self._journal.append(truncation_record(epoch))
            self._make_way(ledger)

    def _retract(self, ledger: Ledger, mark: WithdrawPoint) -> None:
        if self._rolling.manifest().end_of(self._task) > mark.next:
            raise PipelineError(
                f"{self._directory}: rows from {mark.next} on would have to be withdrawn, but were published as "
                "rows of a job that has ended; start a new run elsewhere"
            )
        super()._retract(ledger, mark)
        self._forget()  # hidden files may have rows that were withdrawn

    def publish(self, uncovered: bool = False) -> None:
        """Move all rows from the journal to files.

        Args:
            uncovered: also those that could be withdrawn if the job were resumed; only after it ended for good.
        """
        with self._locked():
            ledger = self._current()
            below = ledger.account.next if uncovered else covered(ledger.account)
            if self._rolling.publish(ledger, self._schema, below) and self._journal.has_grown:
                self._renew(ledger)

    def close(self) -> None:
        """Move rows to files as far as that can be done, and close; rows that stay in the journal are not lost."""
        if self._ledger is not None:
            with suppress(Fenced, Unavailable, CorruptData):
                self.publish()
        self._release()

    def _make_way(self, ledger: Ledger) -> None:
        """Move rows on; a journal that has grown much by rows that are in files is rewritten."""
        named = self._rolling.advance(ledger, self._schema)
        if self._journal.is_due(0 if named else self._sink.file_bytes):
            self._renew(ledger)

    def _renew(self, ledger: Ledger) -> None:
        if self._rolling.holding:  # rows of hidden files are pending, too
            ledger = ledger_in(self._journal.path)
            ledger.publish(self._rolling.manifest().end_of(self._task))
        super()._renew(ledger)

    def _forget(self) -> None:
        super()._forget()
        self._rolling.drop()


def journal_path(directory: Path, task: str) -> Path:
    """The path of a task's journal."""
    return directory / OURS / f"{stem_of(task)}.journal"
