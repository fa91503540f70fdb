"""A sink that writes rows to one `.jsonl` file per sink task, each line exactly once.

A line counts when its newline is there; a line that counts never changes, and goes away only where determinants were
lost (below full sharing depth) on which it depends.  Beside `out-0.jsonl`
lie `.out-0.journal` and `.out-0.lock`.  A bundle is first appended to the journal, rows, determinants, position, digest
and all, with one write: that is the atomic step.  Then its rows go to their place in the `.jsonl`, which is known and
so can be done again.  The next process that opens the store completes the last bundle and cuts off a torn one.

Both steps happen under the lock, and `open` puts a new journal, with its incarnation, in the place of the old one.  A
zombie that wakes up finds under the lock that the journal is no longer the file it has open: it changes nothing.

Durability.  What is written survives the death of any process with either setting; "os" also waits for the disk, so
that it survives a loss of power.
"""

from __future__ import annotations

import os
from pathlib import Path

from causal.errors import CausalError, CorruptData, PipelineError, Unavailable, invariant
from causal.ports import Bundle, SinkStore, StoreState, WithdrawPoint
from causal.records.values import decode, encode, encode_loosely
from causal.shell.modes import ensure_directory, mode_of_directories, mode_of_files, opened
from operators.sinks.contract.account import Account, check_newest, fenced, foreign_rows
from operators.sinks.contract.account_bytes import packed, unpacked
from operators.sinks.contract.bundle_codec import bundle_fields, bundle_of
from operators.sinks.contract.options import (
    EXISTING,
    WAIT_MS_MAX,
    absolute,
    check_choice,
    check_durability,
    check_range,
)
from operators.sinks.contract.sink import Sink, check_directory
from operators.sinks.files.locked_journal import LockedJournal
from operators.sinks.storage.journal import bodies, pwrite_whole, replace_file, sync_directory
from operators.sinks.storage.lock import is_at, locked_once, outside

OWNER = ".causal.run"
"""The file, in the directory, that names the run that it belongs to."""


class JsonLinesSink(Sink):
    """A sink that writes `<directory>/<task>.jsonl`, with "-" for "/" in the task's name.

    Args:
        directory: made when it is not there, its parent is not.  A relative path counts from where the sink is made.
        existing: what to do with rows of an earlier run in that directory: "refuse" to start, or "replace" them.
        durability: "process" or "os" (see the module); none: the job's.
        busy_ms: how long to wait for a process that writes the same file before the write counts as `Unavailable`.
    """

    private = False
    """Whether only the job reads it: it lies in the job's own directory."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        existing: str = "refuse",
        durability: str | None = None,
        busy_ms: int = 2000,
    ) -> None:
        check_choice("JsonLinesSink", "existing", existing, EXISTING)
        check_durability("JsonLinesSink", durability)
        check_range("JsonLinesSink", "busy_ms", busy_ms, 1, WAIT_MS_MAX)
        self.directory = absolute("JsonLinesSink", "directory", directory)
        self.existing = existing
        self.durability = durability
        self.busy_ms = busy_ms

    def path_of(self, task: str) -> Path:
        """The file with the rows of one sink task."""
        return self.directory / f"{task.replace('/', '-')}.jsonl"

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """The store of one sink task; nothing is touched before its `open`."""
        return JsonLinesStore(self, task)

    def check(self) -> None:
        """Raise `PipelineError` where the directory could not be made or written."""
        check_directory(self.directory, "JsonLinesSink")

    def newest_run(self) -> str | None:
        """The newest run that has opened the directory."""
        with outside(self.directory):
            if not self.directory.is_dir():
                return None
            runs = [_run_of(self.directory), *_runs_in(self.directory)]
        return max([run for run in runs if run], default=None)


class JsonLinesStore:
    """The outside world of one sink task, in a `.jsonl` file and its journal.  One thread at a time."""

    def __init__(self, sink: JsonLinesSink, task: str) -> None:
        self._sink = sink
        self._task = task
        self._run = ""
        self._incarnation = -1
        self._path = sink.path_of(task)
        self._mode = mode_of_files(sink.private)
        self._journal = LockedJournal(
            task, _journal_of(self._path), _lock_of(self._path), self._path, self._forget, self._mode
        )
        self._journal.sync = sink.durability == "os"
        self._account: Account | None = None
        self._rows = -1

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
        directory, busy_ms = self._sink.directory, self._sink.busy_ms
        try:
            with outside(directory):
                ensure_directory(directory, mode_of_directories(self._sink.private))
                if self._journal.sync:
                    sync_directory(directory.parent)  # also where the process that made it died before that
                with locked_once(directory / ".causal.lock", busy_ms, directory, self._mode):
                    self._make_room()
                    with self._journal.locked(busy_ms):
                        return self._claim().store_state()
        except BaseException:
            self.close()
            raise

    def _claim(self) -> Account:
        """Fence every lower incarnation: a journal of this one takes the place of theirs."""
        self._rows = opened(self._path, os.O_RDWR, self._mode)
        if self._journal.is_there:
            account = self._load()
            account.incarnation = self._incarnation
        else:
            account = Account(self._task, self._run, self._incarnation)
            os.ftruncate(self._rows, 0)
        self._renew(account)
        self._account = account
        return account

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`."""
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        with self._journal.locked(self._sink.busy_ms):
            account = self._current()
            if self._journal.is_due():
                self._renew(account)
            invariant(not bundle.refused, "a line is never refused", task=self._task, first=bundle.first)
            place = account.row_bytes
            if account.take(bundle) is None:
                return
            invariant(bundle.rows.count(b"\n") == bundle.count, "one line per row", task=self._task, first=bundle.first)
            self._journal.append(encode_loosely(bundle_fields(bundle)))
            pwrite_whole(self._rows, bundle.rows, place)

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`."""
        with self._journal.locked(self._sink.busy_ms):
            self._forget()
            return self._current().store_state()

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`; the journal is rewritten, so it does not grow without bound."""
        if self._account is not None and epoch <= self._account.kept_from:
            return
        with self._journal.locked(self._sink.busy_ms):
            account = self._current()
            if account.truncate(epoch):
                self._renew(account)

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """See `causal.ports.SinkStore.withdraw`; a new journal is the step, the rows are cut off behind it."""
        with self._journal.locked(self._sink.busy_ms):
            account = self._current()
            reach = account.row_bytes
            account.withdraw(mark)
            self._renew(account, reach)
            os.ftruncate(self._rows, account.row_bytes)
            return account.store_state()

    def close(self) -> None:
        """Close the files; what was written stays."""
        self._forget()
        self._journal.close()
        if self._rows >= 0:
            os.close(self._rows)
        self._rows = -1

    def _forget(self) -> None:
        self._account = None

    def _current(self) -> Account:
        """The account, if no younger process has put its journal in the place of ours; rows that are due are there."""
        ours = self._journal.is_ours(self._incarnation)
        if self._account is None or not ours:
            self._account = self._load()
        if not is_at(self._path, self._rows):
            raise Unavailable(f"{self._path} was moved, replaced or deleted while the job runs; put it back")
        return self._account

    def _load(self) -> Account:
        """Read the journal, cut off its torn tail, and write the rows of its bundles that may not all be in place."""
        place = self._journal.path
        records = self._journal.read()
        account, reach = _state(records, place)
        start = account.row_bytes
        if account.task != self._task:
            raise PipelineError(f"{self._path} belongs to sink task {account.task}; give the sinks different names")
        check_newest(self._path, self._run, account.run)
        if account.run != self._run or account.incarnation > self._incarnation:
            raise fenced(self._task, self._incarnation)
        stored = os.fstat(self._rows).st_size
        if stored < start:
            raise CorruptData(f"{self._path} has lost rows that were written; restore it or start a new run elsewhere")
        rows = []
        for body in records[1:]:
            bundle = _bundle(body, place)
            # A bundle written again after a lost acknowledgement is never in the journal twice.
            invariant(account.take(bundle) is not None, "bundles of a journal differ", journal=place)
            rows.append(bundle.rows)
        if stored > max(account.row_bytes, reach):
            raise CorruptData(f"{self._path} has rows that no bundle wrote; restore it or start a new run elsewhere")
        self._journal.cut()
        pwrite_whole(self._rows, b"".join(rows), start)
        os.ftruncate(self._rows, account.row_bytes)  # rows may have been taken back and not cut off yet
        return account

    def _renew(self, account: Account, reach: int = 0) -> None:
        """Put a journal with nothing but the state in the place of the one that is there.

        Args:
            reach: how long the `.jsonl` may be all the same, because rows that were taken back are still in it.
        """
        if self._journal.sync:
            os.fdatasync(self._rows)
        self._journal.renew(encode([account.task, packed(account), reach]))

    def _make_room(self) -> None:
        """Make the directory that of the newest run; what an earlier one left is refused, or removed with "replace".

        The directory's file `.causal.run` names the run before anything is removed, so an older run that comes back
        in the middle of this finds out, and a run that is killed in the middle removes the rest when it comes back.
        """
        directory = self._sink.directory
        owner = _run_of(directory)
        check_newest(directory, self._run, owner, *_runs_in(directory))
        foreign = []
        for journal in sorted(directory.glob(".*.journal")):
            if _owner_of(journal) != self._run:
                foreign.append(journal.with_name(f"{journal.stem[1:]}.jsonl"))
        if not self._journal.is_there:
            foreign.append(self._path)
        for rows in foreign:
            if rows.exists() and rows.stat().st_size and self._sink.existing == "refuse":
                raise foreign_rows(rows, "JsonLinesSink")
        if owner != self._run:
            os.close(replace_file(directory / OWNER, f"{self._run}\n".encode(), self._journal.sync, self._mode))
        for rows in foreign:
            with locked_once(_lock_of(rows), self._sink.busy_ms, rows, self._mode):
                rows.unlink(missing_ok=True)
                _journal_of(rows).unlink(missing_ok=True)


def _run_of(directory: Path) -> str | None:
    """The run that the directory belongs to, by its own file; None where there is none yet."""
    try:
        return (directory / OWNER).read_text("ascii").rstrip("\n")
    except FileNotFoundError:
        return None
    except ValueError:
        raise CorruptData(f"{directory / OWNER} does not name a run; restore the file") from None


def _owner_of(journal: Path) -> str:
    records, _ = bodies(journal.read_bytes(), journal)
    return _state(records, journal)[0].run


def _runs_in(directory: Path) -> list[str]:
    """The runs of all journals of a directory."""
    return [_owner_of(journal) for journal in sorted(directory.glob(".*.journal"))]


def _journal_of(rows: Path) -> Path:
    return rows.with_name(f".{rows.stem}.journal")


def _lock_of(rows: Path) -> Path:
    return rows.with_name(f".{rows.stem}.lock")


def _state(records: list[bytes], where: Path) -> tuple[Account, int]:
    """The account in the first record of a journal, and how long the `.jsonl` may be beyond its rows."""
    try:
        task, account, reach = decode(records[0])
        return unpacked(task, account), int(reach)
    except (CausalError, IndexError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where} does not begin with a state ({problem}); restore the file") from None


def _bundle(body: bytes, where: Path) -> Bundle:
    try:
        return bundle_of(decode(body))
    except (CausalError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where} holds a record that is not a bundle ({problem}); restore the file") from None


def account_in(journal: Path) -> Account:
    """The account in a journal at this moment, read beside its writer, which is not disturbed."""
    records, _ = bodies(journal.read_bytes(), journal)
    account, _ = _state(records, journal)
    for body in records[1:]:
        account.take(_bundle(body, journal))
    return account
