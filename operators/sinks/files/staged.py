"""The store of rows that wait in the job's directory until a complete checkpoint covers them (guarantee `epoch`).

A bundle is appended to `staged/<task>/e<epoch>.rows`, and a commit removes the files of the epochs that it covers.

A younger process replaces the file `owner` under a lock, before it opens the real store; a zombie finds under the lock
that its own is gone, and the real store refuses it as well.

Bounds: one file per epoch, of which at most three exist (one that is being committed, one whose checkpoint is under
way, one that is written).  In memory: one bundle of about `COMMIT_BYTES`.

Durability. "process": staged rows survive the death of every process. "os": also a loss of power; it is synced once per
checkpoint, before the snapshot of the sink is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from xxhash import xxh3_128_digest

from causal.errors import CausalError, CorruptData, fenced
from causal.ports import Bundle, SinkStore
from causal.records.values import decode, encode
from causal.storage.file_journal import FileJournal
from causal.storage.files import sync_directory
from causal.storage.framing import HEAD_BYTES, bodies, framed, write_whole
from operators.sinks.contract.staging import COMMIT_BYTES, StagedRows

WINDOW_BYTES = 1 << 20
BUSY_MS = 2000
DIRECTORY = "staged"
OWNER = "owner"


class StagedStore(StagedRows):
    """Staged rows in files of one machine.

    Args:
        inner: where rows go when they are covered.
        directory: of this task's staged rows; made when it is opened.
        bytes_max: what should be staged at most.
        durability: "process" or "os" (see the module).
    """

    def __init__(self, inner: SinkStore, directory: Path, bytes_max: int, durability: str = "process") -> None:
        super().__init__(inner, bytes_max)
        self._directory = directory
        self._sync = durability == "os"
        self._owner = self._owner_of("")
        self._file = -1
        self._file_epoch = 0

    def stage(self, epoch: int) -> None:
        """See `causal.ports.StagingStore.stage`; in order, so that an epoch is synced before what follows."""
        if not self._sync:
            return
        with self._owned():
            for each in sorted(self._read()):
                if each < epoch:
                    os.fdatasync(self._at(each))
            sync_directory(self._directory)

    # -- files -------------------------------------------------------------------------------------------

    def _claim(self, run: str) -> None:
        """Become the owner: the one before finds out under the lock."""
        self._owner = owner = self._owner_of(self._task)
        with owner.guarded():
            self._directory.mkdir(parents=True, exist_ok=True)
            if self._sync:
                for above in self._directory.parents[:3]:  # `staged/<operator>/<index>` in the job's own
                    sync_directory(above)
        with owner.locked():
            if owner.is_there:
                records = owner.read()
                if not records:
                    raise CorruptData(f"{owner.path} does not name an owner; restore it")
                self._check_owner(records[0], run, self._directory)
            owner.renew(encode([self._task, run, self._incarnation]))

    def _release(self) -> None:
        self._owner.close()
        self._let_go()

    def _epochs(self) -> list[int]:
        return [epoch for epoch, _ in self._files()]

    def _keep(self, bundle: Bundle, body: bytes) -> int:
        record = framed(body)
        write_whole(self._at(bundle.epoch), record)
        return len(record)

    def _guarded(self) -> AbstractContextManager[None]:
        return self._owner.guarded()

    def _owner_of(self, task: str) -> FileJournal:
        """Return the file, of one record, that names who may write the others."""
        lock, place = self._directory / "lock", self._directory
        owner = FileJournal(task, place / OWNER, lock, place, BUSY_MS, self._sync)
        owner.forget = self._forget
        return owner

    def _files(self) -> list[tuple[int, Path]]:
        """Return (epoch, path) of the staged files, in order."""
        return sorted((int(path.stem[1:]), path) for path in self._directory.glob("e*.rows"))

    def _path(self, epoch: int) -> Path:
        return self._directory / f"e{epoch:012d}.rows"

    def _at(self, epoch: int) -> int:
        """Return a descriptor that appends to the file of that epoch."""
        if self._file < 0 or self._file_epoch != epoch:
            self._let_go()
            self._file = os.open(self._path(epoch), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._file_epoch = epoch
        return self._file

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _remove(self, epochs: list[int]) -> None:
        with self._owned():
            for epoch in epochs:
                if self._file_epoch == epoch:
                    self._let_go()
                self._path(epoch).unlink(missing_ok=True)
                if self._sizes is not None:
                    self._sizes.pop(epoch, None)

    def _read(self) -> dict[int, int]:
        """Return the bytes staged per epoch; read from disk where they are not known, and then a torn tail is cut off.

        What does not follow from the rows before it is not held: it is of epochs that will be discarded.
        """
        if self._sizes is not None:
            return self._sizes
        self._let_go()
        sizes: dict[int, int] = {}
        self._next, self._digest, self._last = self._visible, self._visible_digest, b""
        for epoch, path in self._files():
            sound = 0
            for body, end in _records(path):
                first, count, _, digest = _staged(body, path)
                if first > self._next:
                    self._sizes = sizes
                    return sizes
                if first + count > self._next:
                    self._next, self._digest, self._last = first + count, digest, xxh3_128_digest(body)
                sound = end
            if sound < path.stat().st_size:
                os.truncate(path, sound)
            sizes[epoch] = sound
        self._sizes = sizes
        return sizes

    def _bundles(self, epochs: list[int]) -> Iterator[Bundle]:
        """Yield the rows of these epochs that are not visible yet, as few bundles as their size allows."""
        gathered: list[bytes] = []
        begin = place = self._visible
        digest = size = 0
        for epoch in epochs:
            path = self._path(epoch)
            for body, _ in _records(path):
                first, count, rows, last = _staged(body, path)
                if first + count <= place:
                    continue
                if first != place:
                    raise CorruptData(f"{path}: rows {place} to {first} of {self._task} are missing; restore the file")
                gathered.append(rows)
                place, digest, size = first + count, last, size + len(rows)
                if size >= COMMIT_BYTES:
                    yield Bundle(begin, place - begin, b"".join(gathered), digest, epoch, self._incarnation, ())
                    begin, gathered, size = place, [], 0
        if gathered:
            yield Bundle(begin, place - begin, b"".join(gathered), digest, epochs[-1], self._incarnation, ())

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Hold the lock inside the context, while no younger process is the owner."""
        with self._owner.locked():
            if not self._owner.is_ours(self._incarnation):
                raise fenced(self._task, self._incarnation)
            yield


def _records(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield the complete records of a file, each with the place where it ends; a torn tail is left out."""
    rest, place = b"", 0
    with open(path, "rb") as file:
        while True:
            more = file.read(max(WINDOW_BYTES, len(rest)))
            stored = rest + more
            records, sound = bodies(stored, path)
            for body in records:
                place += HEAD_BYTES + len(body)
                yield body, place
            rest = stored[sound:]
            if not more:
                return


def _staged(body: bytes, where: Path) -> tuple[int, int, bytes, int]:
    """Return (first, count, rows, digest) of one record."""
    try:
        first, count, rows, digest, _ = decode(body)
    except (CausalError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where} holds a record that is no staged bundle ({problem}); restore the file") from None
    return int(first), int(count), bytes(rows), int(digest)
