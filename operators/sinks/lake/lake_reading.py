"""A reader of all rows of a sink of a lakehouse: those in the files of the newest version, and those in journals.

Reading blocks no writer and changes nothing. Journals are read before the table, so rows that are committed in the
meantime appear in both places rather than in neither. Rows are found by the names of files; where another program has
rewritten files (compaction, deletion of rows), only the table itself can be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from causal.errors import PipelineError
from causal.storage.object_journal import JournalObjects
from operators.sinks.contract.account import Account
from operators.sinks.journaled.ledger import Ledger, covered
from operators.sinks.lake.lake_place import LakePlace, located
from operators.sinks.lake.lake_settings import LakeSettings
from operators.sinks.lake.lake_table import filled
from operators.sinks.objects.object_place import OURS, journals, stem_of
from operators.sinks.parquet.parquet_reading import JournalTail, Located, rows_of_entry, rows_of_file

_ROWS = re.compile(r"(.+)-(\d{12,})-(\d{12,})-[0-9a-f]+\.parquet")


class LakeOutput:
    """A reader of one table; it never reads the same part of a journal twice."""

    def __init__(self, settings: LakeSettings, shared: bool) -> None:
        self.run = ""
        self.schema: pa.Schema | None = None
        self._settings = settings
        self._table = settings.table()
        if not self._table.open(False):
            raise PipelineError(f"{settings.place} does not exist; use that of a job that has started")
        self._at = LakePlace(located(self._table.location, shared), self._table, settings)
        self._tails: dict[Path, JournalTail] = {}
        self._journals: dict[str, JournalObjects] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._files: dict[str, list[tuple[int, int, str]]] = {}
        self._ends: dict[str, int] = {}

    @property
    def ended(self) -> bool:
        """See `operators.outputs.output.Output.ended`."""
        return bool(self._ledgers) and all(ledger.account.ended for ledger in self._ledgers.values())

    def look(self) -> None:
        """See `operators.outputs.output.Output.look`."""
        runs = self._at.runs()
        if not runs:
            raise PipelineError(f"{self._settings.place} has no rows of a sink; use that of a job that has started")
        self.run = runs[-1]
        ledgers = [ledger for ledger in self._all_ledgers() if ledger.account.run == self.run]
        self._ledgers = {ledger.account.task: ledger for ledger in ledgers}
        facts = self._table.look()
        self.schema, self._files, self._ends = None, {}, dict.fromkeys(self._ledgers, 0)
        if facts is None or not facts.fits(self.run):
            if facts is not None and facts.run > self.run:
                self._ledgers = {}  # a newer run has just begun to replace these rows
            return
        self.schema = pa.schema([pa.field(field.name, field.type) for field in facts.schema])
        by_stem: dict[str, list[tuple[int, int, str]]] = {}
        for name in self._table.names():
            match = _ROWS.fullmatch(name.rpartition("/")[2])
            if match is not None:
                by_stem.setdefault(match[1], []).append((int(match[2]), int(match[3]), name))
        for task, ledger in self._ledgers.items():
            self._files[task] = sorted(by_stem.get(stem_of(task), []))
            self._ends[task] = self._table.end_of(self.run, task)
            ledger.publish(self._ends[task])

    def ends(self, uncovered: bool) -> dict[str, int]:
        """See `operators.outputs.output.Output.ends`."""
        return {
            task: max(self._ends[task], ledger.account.next if uncovered else covered(ledger.account))
            for task, ledger in self._ledgers.items()
        }

    def withdrawn(self) -> dict[str, int]:
        """See `operators.outputs.output.Output.withdrawn`."""
        return {task: ledger.account.withdrawn for task, ledger in self._ledgers.items()}

    def hint(self, task: str, position: int) -> Any:
        """Return None: no hint is needed, because files are named after positions."""
        return None

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Iterator[Located]:
        """See `operators.outputs.output.Output.rows`; columns that were added later have no values in earlier rows.

        Raises:
            PipelineError: another program has rewritten some of these rows.
        """
        at, end = start, min(stop, self._ends.get(task, 0))
        for first, next_, name in self._files.get(task, []):
            if first < end and at < next_ and first <= at:
                stored = pa.BufferReader(self._at.objects.read(name))
                for positions, batch in rows_of_file(stored, name, first, next_, start, stop):
                    yield positions, filled(batch, self.schema)
                at = next_
        if at < end:
            raise PipelineError(
                f"{self._settings.place}: another program has rewritten rows of {task} from {at} on (compaction, "
                "deletion, rollback); read the table itself"
            )
        for entry in self._ledgers[task].entries if task in self._ledgers else ():
            if entry.first < stop and start < entry.next:
                yield from rows_of_entry(entry, self.schema, start, stop)

    def _all_ledgers(self) -> Iterator[Ledger]:
        if isinstance(self._at.place, Path):
            for path in sorted((self._at.place / OURS).glob("*.journal")):
                self._tails.setdefault(path, JournalTail(path))
                try:
                    yield self._tails[path].ledger()
                except FileNotFoundError:
                    continue  # a newer run is ending it
            return
        for folder in journals(self._at.objects):
            journal = self._journals.setdefault(folder, JournalObjects(self._at.objects, folder))
            if records := journal.read():
                yield Ledger.of(records, f"{self._settings.place}: {folder}")


def accounts(settings: LakeSettings, shared: bool) -> list[Account]:
    """Return the accounts of the newest run.

    Raises:
        PipelineError: no sink has written to the table.
    """
    output = LakeOutput(settings, shared)
    output.look()
    return [ledger.account for ledger in output._ledgers.values()]


def newest_run(settings: LakeSettings, shared: bool) -> str | None:
    """Return the newest run that has opened the table, or None if there is none."""
    table = settings.table()
    if not table.open(False):
        return None
    place = located(table.location, shared)
    if str(place).startswith("file:") and not Path(urlsplit(str(place)).path).exists():
        return None
    return max(LakePlace(place, table, settings).runs(), default=None)


def read(output: LakeOutput, uncovered: bool = True) -> pa.Table:
    """Return all rows that the sink has written so far, each exactly once, ordered by task and position."""
    output.look()
    schema = pa.schema([]) if output.schema is None else output.schema
    ends = output.ends(uncovered)
    batches = [batch for task in sorted(ends) for _, batch in output.rows(task, 0, ends[task])]
    return pa.Table.from_batches(batches, schema)
