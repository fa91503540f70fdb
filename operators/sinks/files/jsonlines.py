"""A sink that writes rows to one `.jsonl` file per sink task, each line exactly once.

A line is valid once its newline is written. A valid line never changes, and it is withdrawn only if determinants on
which it depends were lost (below full sharing depth). The files `.out-0.journal` and `.out-0.lock` are next to
`out-0.jsonl`. A bundle is first appended to the journal (`operators.sinks.journaled.journaled_store`). Its rows are
then written to their known position in the `.jsonl` file. The write can therefore be repeated, and if the process dies,
the next process that opens the store completes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from causal.errors import CorruptData, invariant
from causal.ports import Bundle, SinkStore, WithdrawPoint
from causal.storage.file_journal import FileJournal
from causal.storage.files import sync_directory
from causal.storage.framing import pwrite_whole, replace_file
from causal.storage.lock import is_at, locked_once, moved, outside
from causal.storage.modes import ensure_directory, mode_of_directories, mode_of_files, opened
from operators.sinks.contract.account import check_newest, foreign_rows
from operators.sinks.contract.options import (
    EXISTING,
    WAIT_MS_MAX,
    absolute,
    check_choice,
    check_cutting,
    check_durability,
    check_range,
)
from operators.sinks.contract.sink import Sink, check_directory
from operators.sinks.journaled.journaled_store import WithdrawingJournaledStore
from operators.sinks.journaled.ledger import Entry, Ledger, ledger_in
from operators.sinks.journaled.rolling_store import publish_all
from operators.sinks.objects.object_place import accounts, check_place, connected, newest_run, shared_url
from operators.sinks.objects.object_rows import Cutting, ObjectRows

COUNTED_BYTES = 1 << 20
"""The bytes that are read at a time to count lines."""
OWNER = ".causal.run"
"""The file, in the directory, that names the run that it belongs to."""


class JsonLinesSink(Sink):
    """A sink that writes `<directory>/<task>.jsonl`, where "-" replaces "/" in the task's name.

    If it receives the URL of a shared store, it writes objects that contain lines (named as described in
    `operators.sinks.objects.object_place`), and its tasks may move between hosts.

    Needs: nothing; extra `hosts` for a URL.
    Readers: one file of JSON lines per task; of a URL objects of rows, some seconds late; immediately by our readers.
    Step: one append to a journal; in a shared store the creation of one object.
    Fence: the journal is replaced under a lock; in a shared store the object that the owner would create next is
    created.
    Server: –; with a URL the store's promise.
    Power: `durability="os"`; `s3://` always, `file://` never.
    Limits: one machine; with a URL any host, at one request per bundle, and the store must list what was created
    before.

    Args:
        directory: a directory, which is created if it is missing; its parent must exist. A relative path is relative to
            the working directory when the sink is created. Alternatively, `s3://BUCKET/PREFIX`, or `file:///DIRECTORY`
            on storage that all hosts mount.
        existing: what to do with rows of an earlier run in that directory: "refuse" to start, or "replace" them.
        durability: "process", or "os", which also waits for the disk; by default, the job's.
        busy_ms: how long to wait for another process that is writing to the same file before raising `Unavailable`.
        file_bytes: in a shared store, the number of bytes of rows that are collected into one object.
        publish_s: in a shared store, the longest time that rows wait for others before they are moved to an object;
            until then, only our readers see them.
    """

    private = False
    """Whether only the job reads the rows, because they are in the job's own directory."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        existing: str = "refuse",
        durability: str | None = None,
        busy_ms: int = 2000,
        *,
        file_bytes: int = 32 << 20,
        publish_s: float = 10.0,
    ) -> None:
        check_choice("JsonLinesSink", "existing", existing, EXISTING)
        check_durability("JsonLinesSink", durability)
        check_range("JsonLinesSink", "busy_ms", busy_ms, 1, WAIT_MS_MAX)
        check_cutting("JsonLinesSink", file_bytes, publish_s)
        self.url = shared_url("JsonLinesSink", directory, durability)
        self.everywhere = bool(self.url)
        self.directory = Path() if self.url else absolute("JsonLinesSink", "directory", directory)
        self.place = self.url or str(self.directory)
        self.file_bytes = file_bytes
        self.publish_s = publish_s
        self.existing = existing
        self.durability = durability
        self.busy_ms = busy_ms

    def path_of(self, task: str) -> Path:
        """Return the path of the file with the rows of one sink task."""
        return self.directory / f"{task.replace('/', '-')}.jsonl"

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Return the store of one sink task; the store accesses nothing until it is opened."""
        return self.objects_of(task) if self.url else JsonLinesStore(self, task)

    def objects_of(self, task: str) -> ObjectLines:
        """Return the store of one sink task in the shared store."""
        said = (self.existing, self.file_bytes, self.publish_s, "JsonLinesSink")
        return ObjectLines(task, Cutting(self.url, "jsonl", *said))

    def check(self) -> None:
        """Raise `PipelineError` if the directory cannot be created or written to, or the store does not answer."""
        if self.url:
            check_place("JsonLinesSink", self.url)
            return
        check_directory(self.directory, "JsonLinesSink")

    def newest_run(self) -> str | None:
        """Return the newest run that has opened the directory or the place in the shared store."""
        if self.url:
            return newest_run(self.url)
        with outside(self.directory):
            if not self.directory.is_dir():
                return None
            runs = [_run_of(self.directory), *_runs_in(self.directory)]
        return max([run for run in runs if run], default=None)


def publish(url: str, ended: bool = False) -> None:
    """Move all rows in a shared store from the journals to objects, for a job that was ended by `kill -9`.

    Args:
        ended: whether the job will not be resumed, so that rows that could be withdrawn (below full sharing depth)
            become final.
    Raises:
        PipelineError: no sink has written to that place.
    """
    sink = JsonLinesSink(url)
    publish_all(accounts(connected(sink.url)), sink.objects_of, ended)


class _Lines:
    """A mixin that checks the lines of a bundle before they are accepted."""

    _task: str

    def _fitted(self, ledger: Ledger, bundle: Bundle) -> None:
        facts = {"task": self._task, "first": bundle.first}
        invariant(not bundle.refused, "a line is never refused", **facts)
        invariant(bundle.rows.count(b"\n") == bundle.count, "one line per row", **facts)


class ObjectLines(_Lines, ObjectRows):
    """The store of one sink task's rows, in objects that contain lines."""

    def _packed(self, entries: Sequence[Entry], first: int, next_: int) -> bytes:
        return b"".join([entry.bundle.rows for entry in entries])


class JsonLinesStore(_Lines, WithdrawingJournaledStore):
    """The store of one sink task's rows, in a `.jsonl` file and its journal. Only one thread may use it at a time."""

    _journal: FileJournal

    def __init__(self, sink: JsonLinesSink, task: str) -> None:
        self._sink = sink
        self._path = path = sink.path_of(task)
        self._mode = mode_of_files(sink.private)
        self._rows = -1
        sync = sink.durability == "os"
        journal = FileJournal(task, _journal_of(path), _lock_of(path), path, sink.busy_ms, sync, self._mode)
        super().__init__(task, journal, path)

    @contextmanager
    def _room(self) -> Iterator[None]:
        directory = self._sink.directory
        self._check_there(directory / OWNER)
        ensure_directory(directory, mode_of_directories(self._sink.private))
        if self._journal.sync:
            sync_directory(directory.parent)  # the process that created the directory may have died before this step
        with locked_once(directory / ".causal.lock", self._sink.busy_ms, directory, self._mode):
            self._make_room()
            yield

    def _claim(self) -> Ledger:
        self._rows = opened(self._path, os.O_RDWR, self._mode)
        return super()._claim()

    def _begin(self) -> None:
        os.ftruncate(self._rows, 0)

    def _settle(self, ledger: Ledger) -> None:
        end = ledger.account.row_bytes
        stored = self._stored(ledger, end - ledger.row_bytes)
        if stored > end:  # rows were withdrawn but not yet cut off
            os.ftruncate(self._rows, end)

    def _stored(self, ledger: Ledger, least: int) -> int:
        """Return the size of the file, which other programs (such as log rotation) may have truncated or extended."""
        stored = os.fstat(self._rows).st_size
        if stored < least:
            raise CorruptData(
                f"{self._path} has lost rows that were written: it has {stored:,} bytes, but at least {least:,} "
                "were written; restore it or start a new run elsewhere, and exclude it from log rotation"
            )
        if stored > ledger.reach:
            raise CorruptData(f"{self._path} has rows that no bundle wrote; restore it or start a new run elsewhere")
        return stored

    def _publish(self, ledger: Ledger) -> None:
        rows = b"".join([entry.bundle.rows for entry in ledger.entries])
        pwrite_whole(self._rows, rows, ledger.account.row_bytes - len(rows))
        super()._publish(ledger)

    def _retract(self, ledger: Ledger, mark: WithdrawPoint) -> None:
        super()._retract(ledger, mark)
        os.ftruncate(self._rows, ledger.account.row_bytes)

    def _go_back(self, ledger: Ledger, next_: int, digest: int) -> None:
        super()._go_back(ledger, next_, digest)
        os.ftruncate(self._rows, ledger.account.row_bytes)

    def _bytes_at(self, ledger: Ledger, next_: int) -> int:
        """Return the offset of line `next_`, which is known at the end and at marks; elsewhere, lines are counted."""
        account = ledger.account
        places = [mark.next for mark in account.marks]
        offsets = dict(zip([*places, account.next], [*account.mark_bytes, account.row_bytes], strict=True))
        return offsets[next_] if next_ in offsets else self._counted_bytes(next_)

    def _counted_bytes(self, lines: int) -> int:
        """Return the size of the first lines of the file.

        Raises:
            CorruptData: the file has fewer lines.
        """
        offset = 0
        while lines:
            piece = os.pread(self._rows, COUNTED_BYTES, offset)
            if not piece:
                raise CorruptData(f"{self._path} has lost rows that were written: {lines:,} lines; restore it")
            ends = piece.count(b"\n")
            if ends >= lines:
                end = -1
                for _ in range(lines):
                    end = piece.index(b"\n", end + 1)
                return offset + end + 1
            lines, offset = lines - ends, offset + len(piece)
        return offset

    def _renew(self, ledger: Ledger) -> None:
        if self._journal.sync:
            os.fdatasync(self._rows)
        super()._renew(ledger)

    def _current(self) -> Ledger:
        ledger = super()._current()
        if not is_at(self._path, self._rows):
            raise moved(self._path)
        self._stored(ledger, ledger.account.row_bytes)
        return ledger

    def _release(self) -> None:
        super()._release()
        if self._rows >= 0:
            os.close(self._rows)
        self._rows = -1

    def _make_room(self) -> None:
        """Claim the directory for the newest run; refuse rows of an earlier run, or remove them with "replace".

        The file `.causal.run` in the directory names the new run before anything is removed. An older run that returns
        during the removal therefore notices it, and a run that is killed during the removal removes the rest when it
        returns.
        """
        directory = self._sink.directory
        owner = _run_of(directory)
        check_newest(directory, self._run, owner, *_runs_in(directory))
        self._check_counted()
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
    """Return the run to which the directory belongs, according to its owner file, or None without such a file."""
    try:
        return (directory / OWNER).read_text("ascii").rstrip("\n")
    except FileNotFoundError:
        return None
    except ValueError:
        raise CorruptData(f"{directory / OWNER} does not name a run; restore the file") from None


def _owner_of(journal: Path) -> str:
    return ledger_in(journal).account.run


def _runs_in(directory: Path) -> list[str]:
    """Return the runs that own the journals in a directory."""
    return [_owner_of(journal) for journal in sorted(directory.glob(".*.journal"))]


def _journal_of(rows: Path) -> Path:
    return rows.with_name(f".{rows.stem}.journal")


def _lock_of(rows: Path) -> Path:
    return rows.with_name(f".{rows.stem}.lock")
