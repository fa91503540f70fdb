"""The store of one task of a sink of a lakehouse: bundles are written to its journal and later committed as files.

A bundle is one record of the task's journal: this is the atomic step. Rows that fill `file_bytes`, or that have waited
for `publish_s`, become one file and one commit of the table. A record called a *cut* first decides which rows these
are, and the commit contains the position that they end at. A process that finds the cut afterwards can
therefore ask the table whether it was committed, and commit it only if it was not.

A file that was written but never committed, because its process died, belongs to no version of the table; what cleans
tables removes it (Delta: VACUUM, Iceberg: removal of orphan files).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from causal.errors import CorruptData, PipelineError, RowRefused, Unavailable, fenced, invariant
from causal.ports import Bundle
from causal.storage.file_journal import FileJournal
from causal.storage.lock import absent
from causal.storage.object_journal import ObjectJournal
from operators.sinks.contract.account import check_newest
from operators.sinks.journaled.ledger import Entry, Ledger, covered, cut_record
from operators.sinks.journaled.rolling_store import RollingStore
from operators.sinks.lake.lake_place import LakePlace, located
from operators.sinks.lake.lake_settings import LakeSettings
from operators.sinks.lake.lake_table import Conflict, Facts, LakeTable, as_refused, filled, plain, settled
from operators.sinks.objects.object_place import RUNS, stem_of
from operators.sinks.parquet.bundle_columns import FittedColumns, batches_of, schema_of
from operators.sinks.parquet.parquet_file import packed
from operators.sinks.parquet.stored_schema import agreed_schema


def file_name(task: str, first: int, next_: int, token: str) -> str:
    """Return the name of a file of rows; the token makes it unique, so that no process writes another one's file."""
    return f"{stem_of(task)}-{first:012d}-{next_:012d}-{token}.parquet"


class LakeStore(FittedColumns, RollingStore):
    """The store of one sink task: a journal in the directory of the table, and files; used by one thread at a time.

    Args:
        shared: whether the journal is in a shared store, although the table is in a directory.
    """

    _table: LakeTable
    _at: LakePlace
    _whole: pa.Schema
    """The columns of the table."""

    def __init__(self, settings: LakeSettings, task: str, shared: bool) -> None:
        self._settings, self._names, self._shared = settings, settings.columns, shared
        self._token = ""
        self._waiting_since_s: float | None = None
        """The arrival of the oldest row that is in no file, in monotonic time."""
        # The place of the journal is known once the table is open.
        super().__init__(task, FileJournal(task, Path(), Path(), Path(), 1, False), settings.place)

    # -- the implementation of a journaled store -------------------------------------------------------------------

    @contextmanager
    def _room(self) -> Iterator[None]:
        self._token, self._waiting_since_s, self._schema = uuid4().hex[:12], None, None
        self._table = table = self._settings.table()
        if not table.open(not self._expected):
            raise Unavailable(f"{self._place} is missing; restore it")
        where = located(table.location, self._shared)
        self._at = at = LakePlace(where, table, self._settings, RUNS if self._expected else None)
        if self._expected and not at.runs():
            raise absent(self._place, where)
        at.prepare()
        self._use(at.journal(self._task))
        self._journal.prepare()
        with at.locked():
            at.make_room(table, self._run)
        if self._settings.schema is not None:
            self._agreed(self._settings.schema)
            self._check_columns()
        yield
        check_newest(self._place, self._run, *at.runs())  # a newer run may have started before the claim

    def _claim(self) -> Ledger:
        journal = self._journal
        if isinstance(journal, ObjectJournal) and journal.is_there:
            run = Ledger.of(journal.read(), journal.where).account.run
            check_newest(self._place, self._run, run)
            if run != self._run:
                journal.void()  # an older run's process has written it belatedly
        return super()._claim()

    def _begin(self) -> None:
        facts = self._facts()
        if facts is not None and self._table.end_of(self._run, self._task):
            raise CorruptData(f"{self._journal.where} is missing; restore it, or start a new run elsewhere")

    def _settle(self, ledger: Ledger) -> None:
        facts = self._facts()
        self._schema = self._columns(facts) if facts is not None and facts.fits(self._run) else None
        end = self._table.end_of(self._run, self._task) if facts is not None else 0
        if not ledger.published <= end <= ledger.account.next:
            raise CorruptData(
                f"{self._place} has rows of {self._task} up to {end}, but its journal has those from "
                f"{ledger.published} up to {ledger.account.next}; restore the table or {self._journal.where}"
            )
        ledger.publish(end)
        self._commit_cuts(ledger)

    def _make_way(self, ledger: Ledger) -> None:
        if self._due(ledger):
            self._publish_below(ledger, covered(ledger.account))
        elif self._journal.is_due(ledger.row_bytes):
            self._renew(ledger)

    # -- columns ---------------------------------------------------------------------------------------------------

    def _fitted(self, ledger: Ledger, bundle: Bundle) -> list[pa.RecordBatch] | None:
        try:
            return super()._fitted(ledger, bundle)
        except RowRefused:
            if not self._widened(bundle):
                raise
            return super()._fitted(ledger, bundle)

    def _agreed(self, schema: pa.Schema) -> pa.Schema:
        wanted = agreed_schema(self._at.objects, self._run, self._kept(plain(schema)))
        return self._columns(settled(self._place, lambda: self._begun(wanted)))

    def _begun(self, schema: pa.Schema) -> Facts:
        """Return the facts of a table that has the columns of this run, after creating it if necessary."""
        facts = self._facts()
        if facts is not None and facts.fits(self._run):
            return facts
        if facts is None:
            self._table.create(self._run, schema)
        else:
            self._table.begin(self._run, schema)
        raise Conflict

    def _columns(self, facts: Facts) -> pa.Schema:
        """Return the columns of records: all those of the table, unless the sink names the columns of tuples.

        Raises:
            PipelineError: the table lacks a column that the sink names.
        """
        self._whole = facts.schema
        if self._names is None:
            return facts.schema
        lacking = [name for name in self._names if name not in facts.schema.names]
        if lacking:
            raise PipelineError(
                f"{self._place} has no column {lacking[0]!r}, which {self._settings.sink} fills; add it, or correct "
                "columns"
            )
        return pa.schema([facts.schema.field(name) for name in self._names])

    def _widened(self, bundle: Bundle) -> bool:
        """Return whether the table has more columns than those to which a bundle does not fit; add some if desired."""
        if self._schema is None:
            return False
        before = self._schema
        self._schema = self._columns(settled(self._place, lambda: self._grown(bundle)))
        return not self._schema.equals(before)

    def _grown(self, bundle: Bundle) -> Facts:
        facts = self._facts()
        invariant(facts is not None, "a table with rows is there", task=self._task)
        if self._settings.new_columns == "add":
            refused = [position for position, _ in bundle.refused]
            try:
                seen = plain(schema_of(bundle.rows, bundle.first, refused, self._names))
            except RowRefused:
                return facts  # type: ignore[return-value]  # some value can be in no column, so its row is refused
            known = frozenset(map(str.lower, facts.schema.names))  # type: ignore[union-attr]
            fresh = [field for field in seen if field.name.lower() not in known]
            if fresh:
                self._table.grow(self._kept(pa.schema(fresh)))
                facts = self._facts()
        return facts  # type: ignore[return-value]

    def _kept(self, schema: pa.Schema) -> pa.Schema:
        try:
            return self._table.kept(schema)
        except ValueError as problem:
            raise PipelineError(f"{self._place} cannot have these columns: {problem}; convert them") from None

    def _check_columns(self) -> None:
        """Raise `PipelineError` unless the table has the columns of the sink's own schema, and as the first ones."""
        wanted = self._kept(plain(self._settings.schema))
        for place, field in enumerate(wanted):
            there = self._whole.field(place) if place < len(self._whole) else None
            if there is None or (there.name, there.type) != (field.name, field.type):
                has = "nothing" if there is None else f"{there.name!r} as {there.type}"
                raise PipelineError(
                    f"{self._place}: {self._settings.sink}'s schema has {field.name!r} as {field.type} where the table "
                    f"has {has}; use the columns of the table in their order, or another table"
                )

    # -- files and commits -------------------------------------------------------------------------------------------

    def _facts(self) -> Facts | None:
        """Look at the table; raise `Fenced` or `Superseded` if another run owns it."""
        facts = self._table.look()
        check_newest(self._place, self._run, *([facts.run] if facts is not None else []))
        return facts

    def _published(self, ledger: Ledger) -> int:
        return ledger.published

    def _due(self, ledger: Ledger) -> bool:
        """Return whether final rows fill a file, or the oldest row has waited long enough."""
        if not ledger.entries:
            self._waiting_since_s = None
            return False
        now_s = time.monotonic()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        waited = now_s - self._waiting_since_s >= self._settings.publish_s
        full = ledger.row_bytes >= self._settings.file_bytes
        return (waited or full) and ledger.entries[0].next <= covered(ledger.account)

    def _publish_below(self, ledger: Ledger, below: int) -> None:
        """Decide which rows form a file, commit it, and rewrite the journal without these rows."""
        ready = _below(ledger.entries, below)
        if not ready or self._schema is None:  # without columns, all rows were refused
            return
        self._journal.append(cut_record(ready[-1].next))
        ledger.cut(ready[-1].next)
        self._commit_cuts(ledger)
        self._waiting_since_s = None
        self._renew(ledger)

    def _commit_cuts(self, ledger: Ledger) -> None:
        """Commit all files that have been decided on, except those that the table contains."""
        while ledger.cuts:
            first, next_ = ledger.cuts[0]
            entries = _below(ledger.entries, next_)
            reaches = bool(entries) and (entries[0].first, entries[-1].next) == (first, next_)
            invariant(reaches, "a cut has the rows of whole bundles", task=self._task, first=first, next=next_)
            data, rows = self._packed(entries, first, next_)
            name = self._table.folder + file_name(self._task, first, next_, self._token)
            settled(self._place, lambda: self._committed(first, next_, name, data, rows))  # noqa: B023
            ledger.publish(next_)

    def _committed(self, first: int, next_: int, name: str, data: bytes, rows: int) -> None:
        facts = self._facts()
        if facts is None or facts.run != self._run:
            raise fenced(self._task, self._incarnation)
        end = self._table.end_of(self._run, self._task)
        if end >= next_:
            return  # this process or another one has committed the cut
        if end != first:
            raise CorruptData(f"{self._place} has rows of {self._task} up to {end}, not {first}; restore the table")
        self._at.objects.create(name, data, self._settings.durability == "os")
        self._table.add(self._run, self._task, next_, name, len(data), rows)

    def _packed(self, entries: Sequence[Entry], first: int, next_: int) -> tuple[bytes, int]:
        batches: list[pa.RecordBatch] = []
        refused: list[int] = []
        for entry in entries:
            columns = entry.columns
            if columns is None or any(not batch.schema.equals(self._schema) for batch in columns):
                columns = self._columns_of(entry)
            batches += [filled(batch, self._whole) for batch in columns]
            refused += entry.refused
        description = {"run": self._run, "task": self._task, "first": first, "next": next_, "refused": refused}
        data = packed(batches, self._whole, self._settings.compression, description)
        return data, sum(batch.num_rows for batch in batches)

    def _columns_of(self, entry: Entry) -> list[pa.RecordBatch]:
        try:
            return batches_of(entry.bundle.rows, entry.first, entry.refused, self._schema)
        except RowRefused as problem:
            raise as_refused(self._place, problem) from None


def _below(entries: Iterable[Entry], position: int) -> list[Entry]:
    """Return the bundles whose rows are all below the given position."""
    return list(takewhile(lambda entry: entry.next <= position, entries))
