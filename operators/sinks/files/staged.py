"""The store of rows that wait in the job's directory until a complete checkpoint covers them (guarantee `epoch`).

Any sink's store behind a journal of ours: `write` appends a bundle to `staged/<task>/e<epoch>.rows`, `commit` writes
the rows of covered epochs to the real store by the ordinary protocol, as few bundles as their size allows, and
removes their files.  It may be interrupted anywhere and done again: the real store says how far it came.

A younger process replaces the file `owner` under a lock, before it opens the real store; a zombie finds under the
lock that its own is not there any more, and the real store refuses it as well.

Bounds: one file per epoch, of which at most three exist (one that is being committed, one whose checkpoint is under
way, one that is written).  At half of `bytes_max` the task asks for a checkpoint, and sources hold back records until
it is complete; rows of records that were under way by then may come on top.  With `OVER_BYTES_MAX` more than
`bytes_max`, which only rows of a few events can be that no checkpoint divides, the job ends with a line that says so.
In memory: one bundle of about `COMMIT_BYTES`.

Durability.  "process": what is staged survives the death of every process.  "os": also a loss of power; it is synced
once per checkpoint, before the snapshot of the sink is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xxhash import xxh3_128_digest

from causal.errors import CausalError, CorruptData, PipelineError, invariant
from causal.ports import Bundle, SinkStore, StoreState
from causal.records.values import decode, encode
from operators.sinks.contract.account import check_newest, fenced
from operators.sinks.journaled.locked_journal import LockedJournal
from operators.sinks.storage.journal import HEAD_BYTES, bodies, framed, sync_directory, write_whole

OVER_BYTES_MAX = 1 << 30
"""The bytes that may be staged beyond `staged_bytes_max`, of records that were under way when sources began to wait."""
COMMIT_BYTES = 4 << 20
"""The bytes of rows, about, that become visible in one step."""
WINDOW_BYTES = 1 << 20
BUSY_MS = 2000
DIRECTORY = "staged"
OWNER = "owner"


class StagedStore:
    """A causal.ports.StagingStore around the store of one sink task.  One thread at a time.

    Args:
        inner: where rows go when they are covered.
        directory: of this task's staged rows; made when it is opened.
        bytes_max: what should be staged at most.
        durability: "process" or "os" (see the module).
    """

    def __init__(self, inner: SinkStore, directory: Path, bytes_max: int, durability: str = "process") -> None:
        self._inner = inner
        self._directory = directory
        self._bytes_max = bytes_max
        self._sync = durability == "os"
        self._task = ""
        self._incarnation = -1
        self._owner = self._owner_of("")
        self._file = -1
        self._file_epoch = 0
        self._sizes: dict[int, int] | None = None
        """The sound bytes per epoch that is staged; None: to be read again."""
        self._next = self._digest = 0
        self._last = b""
        self._visible = 0
        self._visible_digest = 0
        self._due: Iterator[Bundle] | None = None
        self._due_below = 0
        self._pending: Bundle | None = None

    # -- causal.ports.SinkStore ------------------------------------------------------------------------

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`: here first, then in the real store."""
        self.close()
        self._task, self._incarnation = task, incarnation
        self._owner = self._owner_of(task)
        with self._owner.guarded():
            self._directory.mkdir(parents=True, exist_ok=True)
            if self._sync:
                for above in self._directory.parents[:3]:  # `staged/<operator>/<index>` in the job's own
                    sync_directory(above)
        with self._owner.locked():
            self._claim(run)
        state = self._inner.open(task, run, incarnation)
        self._visible, self._visible_digest = state.next, state.digest
        return self.last_bundle()

    @property
    def refused(self) -> int:
        """The number of committed rows that the real store would not take."""
        return int(getattr(self._inner, "refused", 0))

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`: of the staged rows, which are behind the visible ones."""
        with self._owned():
            self._read()
        return StoreState(self._next, self._digest, ())

    def write(self, bundle: Bundle) -> None:
        """Stage the bundle.

        Raises: as `causal.ports.SinkStore.write`; PipelineError where too much is staged.
        """
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        invariant(not bundle.logs and bundle.depends is None, "staged rows depend on nothing", task=self._task)
        if bundle.ended:
            invariant(bundle.first == self._visible, "a job ends when all is visible", task=self._task)
            self._inner.write(bundle)
            return
        body = encode([bundle.first, bundle.count, bundle.rows, bundle.digest, bundle.epoch])
        mark = xxh3_128_digest(body)
        with self._owned():
            sizes = self._read()
            if mark == self._last and bundle.first + bundle.count == self._next:
                return
            facts = {"task": self._task, "first": bundle.first, "next": self._next, "epoch": bundle.epoch}
            invariant(bundle.first == self._next, "a bundle begins where the last one ended", **facts)
            invariant(bundle.epoch >= max(sizes, default=0), "epochs rise", **facts)
            record = framed(body)
            staged_bytes = sum(sizes.values()) + len(record)
            if staged_bytes > self._bytes_max + OVER_BYTES_MAX:
                raise PipelineError(
                    f"{self._task}: {staged_bytes} bytes of rows wait for a checkpoint, staged_bytes_max is "
                    f"{self._bytes_max}, and {OVER_BYTES_MAX} more are let in; emit less per record or window, "
                    "or set staged_bytes_max higher"
                )
            write_whole(self._at(bundle.epoch), record)
            sizes[bundle.epoch] = sizes.get(bundle.epoch, 0) + len(record)
            self._next, self._digest, self._last = bundle.first + bundle.count, bundle.digest, mark

    def truncate(self, epoch: int) -> None:
        """Do nothing: staged rows have no determinants, and the commit truncates the real store."""

    def close(self) -> None:
        """Close the files; what was written stays."""
        self._inner.close()
        self._owner.close()
        self._let_go()
        self._forget()
        self._pending = None

    # -- causal.ports.StagingStore ------------------------------------------------------------------------

    def stage(self, epoch: int) -> None:
        """See `causal.ports.StagingStore.stage`; in order, so that an epoch is synced before what follows."""
        if not self._sync:
            return
        with self._owned():
            for each in sorted(self._read()):
                if each < epoch:
                    os.fdatasync(self._at(each))
            sync_directory(self._directory)

    def commit(self, epoch: int) -> bool:
        """See `causal.ports.StagingStore.commit`."""
        if self._due is None or self._due_below != epoch:
            with self._owned():
                epochs = [each for each in sorted(self._read()) if each < epoch]
            self._due, self._due_below, self._pending = self._bundles(epochs), epoch, None
        if self._pending is None:
            with self._owner.guarded():
                self._pending = next(self._due, None)
        bundle = self._pending
        if bundle is None:
            self._inner.truncate(epoch)
            self._remove([each for each in self._sizes or () if each < epoch])
            self._due = None
            return False
        self._inner.write(bundle)  # which may be retried with the same one
        self._visible, self._visible_digest = bundle.first + bundle.count, bundle.digest
        self._pending = None
        return True

    def staged(self) -> tuple[int, int]:
        """See `causal.ports.StagingStore.staged`."""
        return self._next - self._visible, sum((self._sizes or {}).values())

    def discard(self, epoch: int) -> StoreState:
        """See `causal.ports.StagingStore.discard`."""
        with self._owned():
            known = [each for each, _ in self._files()]
        self._remove([each for each in known if each >= epoch])
        self._sizes = None
        return self.last_bundle()

    # -- files -------------------------------------------------------------------------------------------

    def _claim(self, run: str) -> None:
        """Become the owner: the one before finds out under the lock."""
        path = self._owner.path
        if self._owner.is_there:
            task, owner, incarnation = _owner_in(self._owner.read(), path)
            check_newest(self._directory, run, owner)
            if (task, owner) != (self._task, run):
                raise PipelineError(
                    f"{self._directory} holds staged rows of another job or run; resume that one "
                    "(causal run PIPELINE.py --resume), or give another --state-dir"
                )
            if incarnation > self._incarnation:
                raise fenced(self._task, self._incarnation)
        self._owner.renew(encode([self._task, run, self._incarnation]))

    def _owner_of(self, task: str) -> LockedJournal:
        """The file, of one record, that says who may touch the others."""
        lock, place = self._directory / "lock", self._directory
        owner = LockedJournal(task, place / OWNER, lock, place, BUSY_MS, self._sync)
        owner.forget = self._forget
        return owner

    def _forget(self) -> None:
        """Make the next step read what is staged again."""
        self._sizes = self._due = None

    def _files(self) -> list[tuple[int, Path]]:
        """Returns (epoch, path) of the staged files, in order."""
        return sorted((int(path.stem[1:]), path) for path in self._directory.glob("e*.rows"))

    def _path(self, epoch: int) -> Path:
        return self._directory / f"e{epoch:012d}.rows"

    def _at(self, epoch: int) -> int:
        """A descriptor that appends to the file of that epoch."""
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
        """The bytes staged per epoch; read from disk where they are not known, and then a torn tail is cut off.

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
        """The rows of these epochs that are not visible yet, as few bundles as their size allows."""
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


def _owner_in(records: list[bytes], where: Path) -> tuple[str, str, int]:
    """Returns (task, run, incarnation)."""
    try:
        task, run, incarnation = decode(records[0])
        return str(task), str(run), int(incarnation)
    except (CausalError, IndexError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where} does not name an owner ({problem}); restore the file") from None


def _records(path: Path) -> Iterator[tuple[bytes, int]]:
    """The complete records of a file, each with the place where it ends; a torn tail is left out."""
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
    """Returns (first, count, rows, digest) of one record."""
    try:
        first, count, rows, digest, _ = decode(body)
    except (CausalError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where} holds a record that is no staged bundle ({problem}); restore the file") from None
    return int(first), int(count), bytes(rows), int(digest)
