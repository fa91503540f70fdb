"""Rows in one `.jsonl` file per sink task, each line exactly once.

A line counts when its newline is there; a line that counts never changes, and goes away only where determinants were
lost (below full sharing depth) on which it depends.  Beside `out-0.jsonl`
lie `.out-0.journal` and `.out-0.lock`.  A bundle is first appended to the journal, rows, determinants, position, digest
and all, with one write: that is the atomic step.  Then its rows go to their place in the `.jsonl`, which is known and
so can be done again.  Whoever opens the store next completes the last bundle and cuts off a torn one.

Both steps happen under the lock, and `open` puts a new journal, with its incarnation, in the place of the old one.  A
zombie that wakes up finds under the lock that the journal is no longer the file it has open: it changes nothing.

Durability.  What is written survives the death of any process with either setting; "os" also waits for the disk, so
that it survives a loss of power.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from causal.errors import CausalError, CorruptData, PipelineError, Unavailable, invariant
from causal.log import LogDelta
from causal.ports import Bundle, Held, Mark, SinkStore
from causal.values import decode, encode
from operators.sinks.account import Account, fenced, foreign_rows
from operators.sinks.base import Sink, check_writable
from operators.sinks.journal import bodies, framed, pwrite_whole, replace_file, write_whole
from operators.sinks.lock import FileLock
from operators.sinks.sqlite import DURABILITY, EXISTING

JOURNAL_BYTES_MAX = 8 << 20
"""A journal beyond this, and beyond twice what it was when it was new, is written anew."""


class JsonLinesSink(Sink):
    """A sink that writes `<directory>/<task>.jsonl`, with "-" for "/" in the task's name.

    Args:
        directory: made when it is not there, its parent is not.  A relative path counts from where the sink is made.
        existing: what to do with rows of an earlier run in that directory: "refuse" to start, or "replace" them.
        durability: "process" or "os" (see the module); none: the job's.
        busy_ms: how long to wait for a process that writes the same file before the write counts as `Unavailable`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        existing: str = "refuse",
        durability: str | None = None,
        busy_ms: int = 2000,
    ) -> None:
        if existing not in EXISTING:
            raise PipelineError(f"JsonLinesSink: existing is {existing!r}; give one of {', '.join(EXISTING)}")
        if durability is not None and durability not in DURABILITY:
            raise PipelineError(f"JsonLinesSink: durability is {durability!r}; give one of {', '.join(DURABILITY)}")
        if not 0 < busy_ms <= 60_000:
            raise PipelineError(f"JsonLinesSink: busy_ms is {busy_ms!r}; give 1 to 60000")
        self.directory = Path(directory).absolute()
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
        if self.directory.exists() and not self.directory.is_dir():
            raise PipelineError(f"JsonLinesSink: {self.directory} is not a directory; give another path")
        check_writable(self.directory if self.directory.exists() else self.directory.parent, "JsonLinesSink")


class JsonLinesStore:
    """The outside world of one sink task, in a `.jsonl` file and its journal.  One thread at a time."""

    def __init__(self, sink: JsonLinesSink, task: str) -> None:
        self._sink = sink
        self._task = task
        self._run = ""
        self._incarnation = -1
        self._path = sink.path_of(task)
        self._journal_path = _journal_of(self._path)
        self._lock = FileLock(self._path.with_name(f".{self._path.stem}.lock"))
        self._account: Account | None = None
        self._rows = self._journal = -1
        self._end = self._journal_end = self._journal_start = 0

    def open(self, task: str, run: str, incarnation: int) -> Held:
        """See `causal.ports.SinkStore.open`."""
        invariant(task == self._task, "a store is opened by the task it was made for", made_for=self._task, task=task)
        self.close()
        self._run, self._incarnation = run, incarnation
        try:
            with self._all_or_nothing():
                self._sink.directory.mkdir(exist_ok=True)
            with self._holding(FileLock(self._sink.directory / ".causal.lock")), self._all_or_nothing():
                self._make_room()
                with self._holding(self._lock):
                    return self._claim().held()
        except BaseException:
            self.close()
            raise

    def _claim(self) -> Account:
        """Fence every lower incarnation: a journal of this one takes the place of theirs."""
        self._rows = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if self._journal_path.exists():
            account = self._load()
            account.incarnation = self._incarnation
        else:
            account, self._end = Account(self._task, self._run, self._incarnation), 0
            os.ftruncate(self._rows, 0)
        self._renew(account)
        self._account = account
        return account

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`."""
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        with self._holding(self._lock), self._all_or_nothing():
            account = self._current()
            if self._journal_end > max(JOURNAL_BYTES_MAX, 2 * self._journal_start):
                self._renew(account)
            invariant(not bundle.refused, "a line is never refused", task=self._task, first=bundle.first)
            fresh = account.take(bundle)
            if fresh is None:
                return
            invariant(bundle.rows.count(b"\n") == bundle.count, "one line per row", task=self._task, first=bundle.first)
            deltas = [[delta.task, delta.epoch, delta.offset, delta.bytes] for delta in bundle.logs]
            told = [bundle.first, bundle.count, bundle.rows, bundle.digest, bundle.epoch, bundle.incarnation, deltas]
            depends = None if bundle.depends is None else [list(extent) for extent in bundle.depends]
            record = framed(encode([*told, bundle.ended, depends, bundle.rollback]))
            write_whole(self._journal, record)
            if self._sink.durability == "os":
                os.fdatasync(self._journal)
            self._journal_end += len(record)
            pwrite_whole(self._rows, bundle.rows, self._end)
            self._end += len(bundle.rows)

    def last_bundle(self) -> Held:
        """See `causal.ports.SinkStore.last_bundle`."""
        with self._holding(self._lock), self._all_or_nothing():
            self._account = None
            return self._current().held()

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`; the journal is written anew, so it does not grow without bound."""
        if self._account is not None and epoch <= self._account.kept_from:
            return
        with self._holding(self._lock), self._all_or_nothing():
            account = self._current()
            if account.truncate(epoch):
                self._renew(account)

    def withdraw(self, mark: Mark) -> Held:
        """See `causal.ports.SinkStore.withdraw`; a new journal is the step, the rows are cut off behind it."""
        with self._holding(self._lock), self._all_or_nothing():
            account = self._current()
            account.withdraw(mark)
            reach, self._end = self._end, account.row_bytes
            self._renew(account, reach)
            os.ftruncate(self._rows, self._end)
            return account.held()

    def close(self) -> None:
        """Let go of the files; what was written stays."""
        self._account = None
        self._lock.close()
        for descriptor in (self._rows, self._journal):
            if descriptor >= 0:
                os.close(descriptor)
        self._rows = self._journal = -1

    @contextmanager
    def _holding(self, lock: FileLock) -> Iterator[None]:
        with self._all_or_nothing():
            if not lock.acquire(self._sink.busy_ms):
                raise Unavailable(f"{self._path} is being written by another process for too long; end that process")
        try:
            yield
        finally:
            lock.release()
            if lock is not self._lock:
                lock.close()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Whatever goes wrong inside, what is in memory is read anew before the next step."""
        try:
            yield
        except BaseException as problem:
            self._account = None
            if isinstance(problem, OSError):
                raise Unavailable(
                    f"{self._path}: {problem.strerror or problem}; check the disk, its space and the directory"
                ) from problem
            raise

    def _current(self) -> Account:
        """The account, if no younger process has put its journal in the place of ours; rows that are due are there."""
        if self._rows < 0:
            raise Unavailable(f"the store of sink task {self._task} is not open; open it first")
        if self._account is None or not _is_at(self._journal_path, self._journal):
            if not self._journal_path.exists():
                raise fenced(self._task, self._incarnation)
            self._account = self._load()
        if not _is_at(self._path, self._rows):
            raise Unavailable(f"{self._path} was moved, replaced or deleted while the job runs; put it back")
        return self._account

    def _load(self) -> Account:
        """Read the journal, cut off its torn tail, and write the rows of its bundles that may not all be in place."""
        if self._journal >= 0:
            os.close(self._journal)
        self._journal = os.open(self._journal_path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        stored = self._journal_path.read_bytes()
        records, sound = bodies(stored, self._journal_path)
        account, reach = _state(records, self._journal_path)
        start = account.row_bytes
        if account.task != self._task:
            raise PipelineError(f"{self._path} belongs to sink task {account.task}; give the sinks different names")
        if account.run != self._run or account.incarnation > self._incarnation:
            raise fenced(self._task, self._incarnation)
        if os.fstat(self._rows).st_size < start:
            raise CorruptData(f"{self._path} has lost rows that were written; restore it or start a new run elsewhere")
        rows = []
        for body in records[1:]:
            bundle = _bundle(body, self._journal_path)
            # A bundle written again after a lost acknowledgement is never in the journal twice.
            invariant(account.take(bundle) is not None, "bundles of a journal differ", journal=self._journal_path)
            rows.append(bundle.rows)
        due = b"".join(rows)
        if os.fstat(self._rows).st_size > max(start + len(due), reach):
            raise CorruptData(f"{self._path} has rows that no bundle wrote; restore it or start a new run elsewhere")
        os.ftruncate(self._journal, sound)
        pwrite_whole(self._rows, due, start)
        self._end = start + len(due)
        os.ftruncate(self._rows, self._end)  # rows may have been taken back and not cut off yet
        self._journal_end, self._journal_start = sound, len(records[0])
        return account

    def _renew(self, account: Account, reach: int = 0) -> None:
        """Put a journal with nothing but the state in the place of the one that is there.

        Args:
            reach: how long the `.jsonl` may be all the same, because rows that were taken back are still in it.
        """
        sync = self._sink.durability == "os"
        if sync:
            os.fdatasync(self._rows)
        logs = [(delta.task, delta.epoch, delta.bytes, delta.offset) for delta in account.held().logs]
        state = (
            (account.task, account.run, account.incarnation, account.next, account.digest, account.last),
            (
                account.kept_from,
                account.ended,
                sorted(account.epochs.items()),
                logs,
                self._end,
                reach,
                account.withdrawn,
            ),
            [
                [m.next, m.digest, m.epoch, m.rollback, m.depends, at]
                for m, at in zip(account.marks, account.mark_bytes)
            ],
        )
        record = framed(encode(state))
        fresh = replace_file(self._journal_path, record, sync)
        if self._journal >= 0:
            os.close(self._journal)
        self._journal = fresh
        self._journal_end = self._journal_start = len(record)

    def _make_room(self) -> None:
        """A directory belongs to one run; what an earlier run left is refused, or removed where the sink says so."""
        foreign = []
        for journal in sorted(self._sink.directory.glob(".*.journal")):
            records, _ = bodies(journal.read_bytes(), journal)
            if _state(records, journal)[0].run != self._run:
                foreign.append(journal.with_name(f"{journal.stem[1:]}.jsonl"))
        if not self._journal_path.exists():
            foreign.append(self._path)
        for rows in foreign:
            if rows.exists() and rows.stat().st_size and self._sink.existing == "refuse":
                raise foreign_rows(rows, "JsonLinesSink")
        for rows in foreign:
            with self._holding(FileLock(rows.with_name(f".{rows.stem}.lock"))):
                rows.unlink(missing_ok=True)
                _journal_of(rows).unlink(missing_ok=True)


def _journal_of(rows: Path) -> Path:
    return rows.with_name(f".{rows.stem}.journal")


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the file that is open is still the one of that name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _state(records: list[bytes], where: Path) -> tuple[Account, int]:
    """What the first record of a journal says, and how long the `.jsonl` may be beyond its rows."""
    try:
        (task, run, incarnation, next_, digest, last), counts, marks = decode(records[0])
        kept_from, ended, epochs, logs, end, size, *withdrawn = counts
        account = Account(task, run, incarnation, next_, digest, last, kept_from, ended, dict(epochs), row_bytes=end)
        account.withdrawn = int(*withdrawn)
        account.merge(LogDelta(owner, epoch, sum(offset), held) for owner, epoch, held, *offset in logs)
        for next_, digest, epoch, rollback, depends, at in marks:
            account.marks.append(Mark(next_, digest, epoch, rollback, tuple((o, e, n) for o, e, n in depends)))
            account.mark_bytes.append(at)
            account.mark_refused.append(0)
    except (CausalError, IndexError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where} does not begin with a state ({problem}); restore the file") from None
    return account, int(size)


def _bundle(body: bytes, where: Path) -> Bundle:
    try:
        first, count, rows, digest, epoch, incarnation, deltas, ended, depends, rollback = decode(body)
        logs: Any = tuple(LogDelta(*delta) for delta in deltas)
        if depends is not None:
            depends = tuple((owner, at, extent) for owner, at, extent in depends)
    except (CausalError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where} holds a record that is not a bundle ({problem}); restore the file") from None
    return Bundle(first, count, rows, digest, epoch, incarnation, logs, ended, depends, rollback)


def account_in(journal: Path) -> Account:
    """What a journal says at this moment, read beside its writer, who is not disturbed."""
    records, _ = bodies(journal.read_bytes(), journal)
    account, _ = _state(records, journal)
    for body in records[1:]:
        account.take(_bundle(body, journal))
    return account
