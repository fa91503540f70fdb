"""The place of one sink in a shared store; it belongs to the newest run that has started writing there (D15).

    run=<run>/<task>-<first>-<next>.<suffix>     rows, which never change; the folder contains only this run's rows
    _causal/runs/<run>                           one object per run, "jsonl" or "parquet"; the highest is the newest
    _causal/schemas/<run>                        the schema of Parquet objects
    _causal/journals/<task>/…                    the journal of each task (`causal.storage.object_journal`)

Readers of directories skip names that begin with `_`. A newer run announces itself before it removes anything, then
invalidates the journals of older runs, which fences their processes, and finally removes their rows. A process of an
older run that was paused during all this can still add an object to its own run's folder, but to no other folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from causal.errors import PipelineError, Unavailable
from causal.storage.object_journal import JournalObjects, ObjectJournal
from causal.storage.objects import Objects
from causal.storage.shared import Depot
from operators.sinks.contract.account import Account, check_newest, foreign_rows
from operators.sinks.contract.sink import check_writable
from operators.sinks.journaled.ledger import Ledger

OURS = "_causal"
RUNS, JOURNALS, SCHEMAS = f"{OURS}/runs", f"{OURS}/journals", f"{OURS}/schemas"
_ROWS = re.compile(r"(.+)-(\d{12,})-(\d{12,})\.[a-z]+")


def shared_url(sink: str, directory: object, durability: str | None) -> str:
    """Return the URL that a sink received instead of a directory, without a trailing slash, or "" for a directory.

    Raises:
        PipelineError: the URL is not that of a shared store, or the store does not promise the required durability.
    """
    if not isinstance(directory, str) or "://" not in directory:
        return ""
    try:
        parts = urlsplit(directory)
    except ValueError as problem:
        raise PipelineError(
            f"{sink}: {directory!r} is not a URL ({problem}); use s3://BUCKET/PREFIX or file:///DIRECTORY"
        ) from None
    odd = not directory.isprintable() or any(character.isspace() for character in parts.netloc)
    if odd or parts.scheme not in ("s3", "file") or (parts.scheme == "file") == bool(parts.netloc):
        raise PipelineError(
            f"{sink}: {directory!r} is not the URL of a store; use s3://BUCKET/PREFIX or file:///DIRECTORY"
        )
    if durability == "os" and parts.scheme == "file":
        raise PipelineError(
            f"{sink}: durability 'os' needs s3:// or a path, because objects of file:// are not synced to disk"
        )
    return directory.rstrip("/")


def connected(url: str, proof: str | None = None, options: Mapping[str, str] | None = None) -> Depot:
    """Return a client of the shared store; the client starts threads, so the process must not fork afterwards."""
    return Depot(url, "", proof=proof, options=options)


def check_place(sink: str, url: str, options: Mapping[str, str] | None = None) -> None:
    """Raise `PipelineError` unless the store at the URL answers.

    A directory that is still missing is not an error, provided it can be created.
    """
    if url.startswith("file:") and not (root := Path(urlsplit(url).path)).exists():
        check_writable(next(above for above in root.parents if above.exists()), sink)
        return
    try:
        known_runs(connected(url, options=options))
    except Unavailable as problem:
        raise PipelineError(f"{sink}: {problem}; check the URL, the endpoint and the credentials") from None


def kind_of(depot: Objects, run: str) -> str:
    """Return the suffix of the given run's row objects."""
    return depot.read(f"{RUNS}/{run}").decode("ascii", "replace")


def newest_run(url: str, options: Mapping[str, str] | None = None) -> str | None:
    """Return the newest run that has started writing to the place, or None if there is none."""
    if url.startswith("file:") and not Path(urlsplit(url).path).exists():
        return None
    return max(known_runs(connected(url, options=options)), default=None)


def stem_of(task: str) -> str:
    """Return the prefix of the names of a task's objects."""
    return task.replace("/", "-")


def journal_folder(task: str) -> str:
    """Return the folder of a task's journal."""
    return f"{JOURNALS}/{stem_of(task)}"


def rows_name(run: str, task: str, first: int, next_: int, suffix: str) -> str:
    """Return the name of the object that contains these rows; sorting the names sorts the rows."""
    return f"run={run}/{stem_of(task)}-{first:012d}-{next_:012d}.{suffix}"


def rows_in(depot: Objects, run: str) -> dict[str, list[tuple[int, int, str]]]:
    """Return (first, next, name) of each row object of a run, in order, keyed by the prefix of the task's objects."""
    ranges: dict[str, list[tuple[int, int, str]]] = {}
    for name in depot.names(f"run={run}"):
        match = _ROWS.fullmatch(name.rpartition("/")[2])
        if match is not None:
            ranges.setdefault(match[1], []).append((int(match[2]), int(match[3]), name))
    return ranges


def known_runs(depot: Objects) -> list[str]:
    """Return the runs that have started writing to the place and whose rows were not removed, oldest first."""
    return [name.rpartition("/")[2] for name in depot.names(RUNS)]


def journals(depot: Objects) -> list[str]:
    """Return the folders of all journals."""
    return sorted(dict.fromkeys(name.rpartition("/")[0].rpartition("/")[0] for name in depot.names(JOURNALS)))


def accounts(depot: Depot) -> list[Account]:
    """Return the accounts of the newest run.

    Raises:
        PipelineError: no sink has written to the place.
    """
    runs = known_runs(depot)
    if not runs:
        raise PipelineError(f"{depot.url} has no rows of a sink; use the URL of a sink whose job has started")
    there = []
    for folder in journals(depot):
        records = JournalObjects(depot, folder).read()
        if records:
            there.append(Ledger.of(records, f"{depot.url}: {folder}").account)
    return [account for account in there if account.run == runs[-1]]


def make_room(depot: Depot, url: str, run: str, existing: str | None, sink: str, suffix: str) -> None:
    """Claim the place for `run`, the newest run; a claim that was interrupted at any point can be repeated.

    Raises:
        Superseded: a newer run has started writing to the place.
        PipelineError: the place contains rows of an older run, and the sink does not replace them.
    """
    runs = known_runs(depot)
    check_newest(url, run, *runs)
    older = [each for each in runs if each != run]
    foreign = list(_of_other_runs(depot, url, run)) if older else []
    if existing == "refuse" and (any(taken for _, taken in foreign) or any(rows_in(depot, each) for each in older)):
        raise foreign_rows(url, sink)
    if run not in runs:
        depot.create(f"{RUNS}/{run}", suffix.encode())
    for journal, _ in foreign:
        journal.void()
    for each in older:
        depot.remove(depot.names(f"run={each}"))
    depot.remove([f"{folder}/{each}" for folder in (SCHEMAS, RUNS) for each in older])


def _of_other_runs(depot: Depot, url: str, run: str) -> Iterator[tuple[ObjectJournal, bool]]:
    """Yield each journal of another run, and whether that journal has accepted rows."""
    for account, journal in journaled_accounts(depot, url):
        if account.run != run:
            check_newest(url, run, account.run)
            yield journal, account.next > 0


def journaled_accounts(depot: Objects, place: str) -> Iterator[tuple[Account, ObjectJournal]]:
    """Yield each account, whichever run it belongs to, with its journal."""
    for folder in journals(depot):
        journal = ObjectJournal("", folder, place, lambda: depot)
        journal.prepare()
        if journal.is_there:
            yield Ledger.of(journal.read(), journal.where).account, journal
