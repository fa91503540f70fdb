"""The directory of a table, where the sink keeps what no table format can: journals, and the runs that wrote.

    _causal/runs/<run>          one object per run that has opened the table, "delta" or "iceberg"
    _causal/schemas/<run>       the columns that the first rows of a run have, which the first writer decides
    _causal/<task>.journal      the journal of each task, in a directory on one machine
    _causal/journals/<task>/…   the same in a shared store

Both formats, and the programs that clean their directories, pass over names that begin with `_`. A newer run announces
itself, then ends the journals of older runs, which fences their processes, and then claims the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from urllib.parse import unquote, urlsplit

from causal.errors import PipelineError
from causal.storage.directory import Directory
from causal.storage.file_journal import FileJournal
from causal.storage.journal import Journal
from causal.storage.modes import ensure_directory, mode_of_directories, mode_of_files
from causal.storage.object_journal import ObjectJournal
from causal.storage.objects import Objects
from causal.storage.shared import Depot
from operators.sinks.contract.account import Account, check_newest, foreign_rows
from operators.sinks.journaled.ledger import ledger_in
from operators.sinks.lake.lake_settings import LakeSettings
from operators.sinks.lake.lake_table import OWN, OWN_FULL, Facts, LakeTable, settled
from operators.sinks.objects import object_place
from operators.sinks.objects.object_place import OURS, RUNS, SCHEMAS, journal_folder, known_runs, stem_of
from operators.sinks.parquet.manifest import holding_directory

Located = Path | str
"""A directory on this machine, or the URL of a shared store."""


def located(location: str, shared: bool) -> Located:
    """Return the place of a table's files; a directory in the form of a URL is a path unless it is `shared`."""
    if "://" not in location:
        return Path(location)
    parts = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" and not shared else location


class LakePlace:
    """The objects and journals in the directory of one table.

    Args:
        place: the directory; `table.options` are those of the client of a shared store.
        proof: the name of an object that must exist, see `causal.storage.shared.Depot`.
    """

    def __init__(self, place: Located, table: LakeTable, settings: LakeSettings, proof: str | None = None) -> None:
        self.place = place
        self._settings = settings
        self.objects: Objects
        if isinstance(place, Path):
            self.objects = Directory(place)
        else:
            self.objects = Depot(place, "", proof=proof, options=table.options)

    def prepare(self) -> None:
        """Create the directories on this machine, of which the parent must exist."""
        if isinstance(self.place, Path):
            for directory in (self.place, self.place / OURS):
                ensure_directory(directory, mode_of_directories())

    def journal(self, task: str) -> Journal:
        """Return the journal of a task."""
        settings = self._settings
        if isinstance(self.place, Path):
            path, sync = self.place / OURS / f"{stem_of(task)}.journal", settings.durability == "os"
            lock = path.with_suffix(".lock")
            return FileJournal(task, path, lock, self.place, settings.busy_ms, sync, mode_of_files())
        return ObjectJournal(task, journal_folder(task), settings.place, lambda: self.objects)

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock of a directory on this machine; in a shared store, no step needs one."""
        if isinstance(self.place, Path):
            return holding_directory(self.place, self._settings.busy_ms)
        return nullcontext()

    def runs(self) -> list[str]:
        """Return the runs that have opened the table, oldest first."""
        return known_runs(self.objects)

    def accounts(self) -> Iterator[tuple[Account, Journal]]:
        """Yield each account, with its journal."""
        if isinstance(self.place, Path):
            for path in sorted((self.place / OURS).glob("*.journal")):
                account = ledger_in(path).account
                yield account, self.journal(account.task)
            return
        yield from object_place.journaled_accounts(self.objects, self._settings.place)

    def make_room(self, table: LakeTable, run: str) -> Facts | None:
        """Claim the directory and the table for `run`; may be interrupted anywhere, and repeated.

        Raises:
            Superseded: a newer run has begun to write.
            PipelineError: there are rows of another run, or rows that no run wrote.
        """
        place, runs = self._settings.place, self.runs()
        facts = table.look()
        check_newest(place, run, *runs, facts.run if facts is not None else None)
        older = [(account, journal) for account, journal in self.accounts() if account.run != run]
        check_newest(place, run, *(account.run for account, _ in older))
        if facts is not None and facts.run != run and table.names():
            if not facts.run:
                raise PipelineError(f"{place} has rows that no run wrote; give the sink its own table")
            if self._settings.existing == "refuse":
                raise foreign_rows(place, self._settings.sink)
        if self._settings.existing == "refuse" and any(account.next for account, _ in older):
            raise foreign_rows(place, self._settings.sink)
        if run not in runs:
            self.objects.create(f"{RUNS}/{run}", self._settings.kind.encode())
        for _, journal in older:
            _end(journal)
        facts = settled(place, lambda: self._claimed(table, run))
        self.objects.remove([f"{folder}/{each}" for folder in (SCHEMAS, RUNS) for each in runs if each != run])
        return facts

    def _claimed(self, table: LakeTable, run: str) -> Facts | None:
        """Make the run the owner; rows of an older one go now, or at the latest with the first new ones."""
        facts = table.look()
        if facts is None:
            return None
        check_newest(self._settings.place, run, facts.run)
        if facts.run != run:
            own = facts.fitted in (OWN, OWN_FULL)
            table.claim(run, (OWN_FULL if table.names() else OWN) if own else "")
            facts = table.look()
        if facts is not None and facts.fitted in ("", OWN_FULL) and table.names():
            table.empty()
            facts = table.look()
        if facts is not None and facts.fitted == OWN_FULL:
            table.claim(run, OWN)
            facts = table.look()
        return facts


def _end(journal: Journal) -> None:
    """End the journal of an older run, so that its process is fenced at its next step."""
    if isinstance(journal, FileJournal):
        journal.path.unlink(missing_ok=True)
    elif isinstance(journal, ObjectJournal):
        journal.void()
