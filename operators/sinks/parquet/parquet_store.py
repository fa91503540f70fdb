"""The store of one task of a `ParquetSink`: bundles go to its journal, and from there to files (see `parquet`)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from causal.errors import CorruptData, Fenced, PipelineError, Unavailable, invariant
from causal.ports import Bundle, StoreState, WithdrawPoint
from causal.shell.modes import ensure_directory, mode_of_directories, mode_of_files
from operators.sinks.contract.account import Account, check_newest, fenced
from operators.sinks.files.ledger import (
    Ledger,
    bundle_record,
    claim_record,
    entry_of,
    state_record,
    truncation_record,
    withdrawal_record,
)
from operators.sinks.files.locked_journal import LockedJournal
from operators.sinks.parquet.bundle_columns import batches_of, schema_of
from operators.sinks.parquet.claim_directory import make_room
from operators.sinks.parquet.manifest import OURS, holding_directory, stem_of, store_manifest
from operators.sinks.parquet.parquet_rolling import Rolling
from operators.sinks.storage.journal import bodies, sync_directory
from operators.sinks.storage.lock import outside

if TYPE_CHECKING:
    from operators.sinks.parquet.parquet_sink import ParquetSink


class ParquetStore:
    """The outside world of one sink task, in a journal and Parquet files.  One thread at a time."""

    def __init__(self, sink: ParquetSink, task: str) -> None:
        self._sink = sink
        self._task = task
        self._run = ""
        self._incarnation = -1
        self._directory = sink.directory
        path = journal_path(sink.directory, task)
        lock = path.with_suffix(".lock")
        self._journal = LockedJournal(task, path, lock, sink.directory, self._forget, mode_of_files())
        self._journal.sync = sink.durability == "os"
        self._rolling = Rolling(sink, task, "", -1)
        self._ledger: Ledger | None = None
        self._schema: pa.Schema | None = None

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`."""
        invariant(
            task == self._task,
            "a store is opened by the task it was made for",
            made_for=self._task,
            task=task,
        )
        self.close()
        self._run, self._incarnation = run, incarnation
        self._rolling = Rolling(self._sink, task, run, incarnation)
        try:
            with outside(self._directory):
                ensure_directory(self._directory, mode_of_directories())
                ensure_directory(self._directory / OURS, mode_of_directories())
                if self._journal.sync:
                    sync_directory(self._directory)
                    sync_directory(self._directory.parent)
                with holding_directory(self._directory, self._sink.busy_ms):
                    make_room(self._sink, run)
            with self._journal.locked(self._sink.busy_ms):
                self._ledger = self._claim()
                self._rolling.clear()
                return self._ledger.account.store_state()
        except BaseException:
            self._let_go()
            raise

    def _claim(self) -> Ledger:
        """Fence every lower incarnation: the journal grows by the claim of this one."""
        if self._journal.is_there:
            ledger = self._load()
            ledger.account.incarnation = self._incarnation
            self._journal.append(claim_record(self._incarnation))
            return ledger
        manifest = self._rolling.manifest()
        if manifest.end_of(self._task):
            raise CorruptData(f"{self._journal.path} is missing; restore it, or start a new run elsewhere")
        self._schema = manifest.schema
        ledger = Ledger(Account(self._task, self._run, self._incarnation))
        self._renew(ledger)
        return ledger

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`."""
        with self._journal.locked(self._sink.busy_ms):
            self._forget()
            return self._current().account.store_state()

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`; earlier rows are moved before these come, or nothing is written."""
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        with self._journal.locked(self._sink.busy_ms):
            ledger = self._current()
            self._move(ledger)
            batches = self._fitted(bundle) if bundle.first == ledger.account.next else []
            if ledger.account.take(bundle) is None:
                return
            self._journal.append(bundle_record(bundle))
            if bundle.count:
                ledger.add(entry_of(bundle, batches))

    def _fitted(self, bundle: Bundle) -> list[pa.RecordBatch]:
        """The rows as columns; the first rows make the schema, for all tasks and for good."""
        refused = [position for position, _ in bundle.refused]
        if not bundle.rows or bundle.count == len(refused):
            return []
        if self._schema is None:
            schema = schema_of(bundle.rows, bundle.first, refused, self._sink.columns)
            with holding_directory(self._directory, self._sink.busy_ms):
                manifest = self._rolling.manifest()
                if manifest.schema is None:
                    manifest.schema = schema
                    store_manifest(self._directory, manifest, self._sink.durability == "os")
            self._schema = manifest.schema
        batches = batches_of(bundle.rows, bundle.first, refused, self._schema)
        rows = len(refused) + sum(batch.num_rows for batch in batches)
        invariant(rows == bundle.count, "rows and their count agree", task=self._task, first=bundle.first, rows=rows)
        return batches

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`; rows that have waited for long enough go to a file."""
        if self._ledger is not None and epoch <= self._ledger.account.kept_from and not self._rolling.due(self._ledger):
            return
        with self._journal.locked(self._sink.busy_ms):
            ledger = self._current()
            if ledger.account.truncate(epoch):
                self._journal.append(truncation_record(epoch))
            self._move(ledger)

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """See `causal.ports.SinkStore.withdraw`; no file that has its name has rows that can be taken back."""
        with self._journal.locked(self._sink.busy_ms):
            ledger = self._current()
            if self._rolling.manifest().end_of(self._task) > mark.next:
                raise PipelineError(
                    f"{self._directory}: rows from {mark.next} on would have to be taken back, but were published as "
                    "rows of a job that has ended; start a new run elsewhere"
                )
            ledger.account.withdraw(mark)
            self._journal.append(withdrawal_record(mark))
            self._forget()
            return self._current().account.store_state()

    def publish(self, uncovered: bool = False) -> None:
        """Move all rows from the journal to files.

        Args:
            uncovered: also those that could be taken back if the job were resumed; only after it ended for good.
        """
        with self._journal.locked(self._sink.busy_ms):
            ledger = self._current()
            below = ledger.account.next if uncovered else ledger.covered
            if self._rolling.publish(ledger, self._schema, below) and self._journal.has_grown:
                self._renew(ledger)

    def close(self) -> None:
        """Move rows to files as far as that can be done, and close; rows that stay in the journal are not lost."""
        if self._ledger is not None:
            with suppress(Fenced, Unavailable, CorruptData):
                self.publish()
        self._let_go()

    def _move(self, ledger: Ledger) -> None:
        """Move rows on; a journal that has grown much by rows that are in files is rewritten."""
        named = self._rolling.advance(ledger, self._schema)
        spare = 0 if named else self._sink.file_bytes
        if self._journal.is_due(spare):
            self._renew(ledger)

    # -- the journal ---------------------------------------------------------------------------------

    def _current(self) -> Ledger:
        """The ledger, if no younger process has claimed the journal."""
        ours = self._journal.is_ours(self._incarnation)
        if self._ledger is None or not ours:
            self._forget()
            self._ledger = self._load()
        return self._ledger

    def _load(self) -> Ledger:
        """Read the journal and cut off its torn tail; rows that are in files are left out."""
        ledger = Ledger.of(self._journal.read(), self._journal.path)
        account = ledger.account
        if account.task != self._task:
            raise PipelineError(f"{self._directory} has rows of sink task {account.task}; give the sinks other names")
        check_newest(self._directory, self._run, account.run)
        if account.run != self._run or account.incarnation > self._incarnation:
            raise fenced(self._task, self._incarnation)
        manifest = self._rolling.manifest()
        end = manifest.end_of(self._task)
        ledger.forget(end)
        if end > account.next or (ledger.entries[0].first if ledger.entries else account.next) != end:
            raise CorruptData(f"{self._journal.path} does not continue where the files end, at {end}; restore it")
        self._schema = manifest.schema
        self._journal.cut()
        self._rolling.adopt(ledger)
        return ledger

    def _renew(self, ledger: Ledger) -> None:
        """Put a journal with nothing but the state in the place of the one that is there."""
        whole, path = ledger, self._journal.path
        if self._rolling.holding:
            whole = Ledger.of(bodies(path.read_bytes(), path)[0], path)
            whole.forget(self._rolling.manifest().end_of(self._task))
        self._journal.renew(state_record(whole))

    def _forget(self) -> None:
        """Make the next step read everything again."""
        self._ledger = None
        self._rolling.drop()

    def _let_go(self) -> None:
        self._forget()
        self._journal.close()


def journal_path(directory: Path, task: str) -> Path:
    """The path of a task's journal."""
    return directory / OURS / f"{stem_of(task)}.journal"
