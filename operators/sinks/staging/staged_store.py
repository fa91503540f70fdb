"""The store of rows that wait until a complete checkpoint covers them (guarantee `epoch`).

    rows/<incarnation>-<token>-<first>-<next>   rows of one epoch, which never change
    the journal                                 the names of the valid objects, and the process that owns them

This store places staged rows in front of any sink's store, which is called the real store below. `write` collects
bundles in memory, up to `COMMIT_BYTES` or until the barrier of their epoch. This is safe, because the sink acknowledges
its snapshot only after the rows are staged, and whatever no complete checkpoint covers is performed again. The
collected rows then become an object, and a record of the journal names the object: from that record on, the rows are
staged. `commit` writes the objects of covered epochs to the real store by the ordinary protocol, and removes them. The
position of the real store shows which objects it has accepted, so a commit does not write to the journal; the journal
is rewritten after `RECORDS_MAX` records. A commit may be interrupted at any point and repeated.

A newer process claims the journal before it opens the real store. A zombie notices this at its next record, and the
real store refuses it as well. A zombie removes nothing that is still needed: only objects whose rows are visible, or
objects that it has just removed from the journal. An object that a zombie creates is in no record; the next process
recognises it by its lower incarnation and removes it.

Bounds. Memory contains at most one object of about `COMMIT_BYTES`, and one entry per object. At half of `bytes_max`,
the task asks for a checkpoint, and sources hold back records until the checkpoint is complete; the rows of records that
are already in progress may be staged in addition. If `bytes_max` is exceeded by more than `OVER_BYTES_MAX`, the job
ends with an error. Only the rows of a few events, which no checkpoint can divide, can be that large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from typing import Protocol
from uuid import uuid4

from xxhash import xxh3_128_digest

from causal.errors import CausalError, CorruptData, PipelineError, fenced, invariant
from causal.ports import Bundle, LastingStore, ReturningStore, SinkStore, StoreState
from causal.records.values import decode, encode
from causal.storage.framing import bodies, framed
from causal.storage.journal import Journal
from causal.storage.objects import Missing, Objects
from operators.sinks.contract.account import check_newest
from operators.sinks.contract.refusals import limit_of, obstacle

OVER_BYTES_MAX = 1 << 30
"""The bytes that may be staged beyond `staged_bytes_max`, of records that were under way when sources began to wait."""
COMMIT_BYTES = 4 << 20
"""The bytes of rows, about, that become visible in one step."""
RECORDS_MAX = 256
"""A journal with more records after its state is renewed at the next commit."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of staged rows.

    Attributes:
        digest: the rolling digest after the object's last row.
        mark: the mark of the object's last bundle, by which that bundle is recognised when it is written again.
        size: the size of the rows, in bytes.
    """

    name: str
    first: int
    next: int
    digest: int
    epoch: int
    mark: bytes
    size: int


class Earlier(Protocol):
    """Rows that an earlier version of this package staged in another form."""

    def bundles(self) -> Iterator[Bundle]:
        """Yield the bundles in order; they may begin at any position."""
        ...

    def remove(self) -> None:
        """Remove the rows, because all that are valid have been staged in the current form."""
        ...


@dataclass(frozen=True, slots=True)
class StagedPlace:
    """The place where the rows of one sink task wait.

    Attributes:
        folder: the folder of the objects that contain rows.
        durable: whether staged rows survive a loss of power.
        connect: returns the client of the objects; it is called once per `open`, never before a fork.
        journal: returns the journal; its argument is a function that returns the client.
    """

    folder: str
    durable: bool
    connect: Callable[[], Objects]
    journal: Callable[[Callable[[], Objects]], Journal]
    earlier: Earlier | None = None


class StagedStore:
    """A `causal.ports.StagingStore` around the store of one sink task. Only one thread may use it at a time.

    Args:
        inner: the store that receives rows once a checkpoint covers them.
        bytes_max: the number of bytes that staged rows should not exceed.
    State: the journal is read again after any failure (`_forget`).
    """

    def __init__(self, inner: SinkStore, bytes_max: int, place: StagedPlace) -> None:
        self._inner = inner
        self._bytes_max = bytes_max
        self._place = place
        self._journal = place.journal(lambda: self._store)
        self._journal.forget = self._forget
        self._objects: Objects | None = None
        self._task = self._run = self._token = ""
        self._incarnation = -1
        self._entries: list[Entry] = []
        self._records = 0
        """The records in the journal after its state."""
        self._gathered: list[tuple[Bundle, bytes]] = []
        self._gathered_bytes = 0
        """Bundles of one epoch that are in no object yet, each with its mark."""
        self._sizes: dict[int, int] | None = None
        """The bytes per epoch that wait; None: the journal is to be read again."""
        self._next = self._digest = 0
        self._last = b""
        """The mark of the last bundle."""
        self._visible = self._visible_digest = 0
        self._visible_in = ""
        self._pending: Bundle | None = None
        """The bundle that becomes visible next, and may be in the real store already."""

    # -- causal.ports.SinkStore ------------------------------------------------------------------------

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`; opens this store first, then the real store."""
        self.close()
        self._task, self._run, self._incarnation, self._token = task, run, incarnation, uuid4().hex[:12]
        self._claim()
        state = self._inner.open(task, run, incarnation)
        self._visible, self._visible_digest, self._visible_in = state.next, state.digest, state.place
        self._adopt()
        return self.last_bundle()

    def expect(self, counted: bool) -> None:
        """See `causal.ports.LastingStore.expect`; only the real store must exist, as there may be no staged rows."""
        if isinstance(self._inner, LastingStore):
            self._inner.expect(counted)

    @property
    def refused(self) -> int:
        """The number of committed rows that the real store has refused."""
        return int(getattr(self._inner, "refused", 0))

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`; this is the end of the staged rows, after the visible ones."""
        with self._owned():
            return StoreState(self._next, self._digest, (), place=self._visible_in)

    def write(self, bundle: Bundle) -> None:
        """Stage the bundle; a newer process is detected only when the collected rows become an object.

        Raises: the same errors as `causal.ports.SinkStore.write`, and `PipelineError` if too many bytes are staged.
        """
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        invariant(not bundle.logs and bundle.depends is None, "staged rows depend on nothing", task=self._task)
        if bundle.ended:
            invariant(bundle.first == self._visible, "a job ends when all is visible", task=self._task)
            self._inner.write(bundle)
            return
        sizes = self._known()
        body = encode([bundle.first, bundle.count, bundle.rows, bundle.digest, bundle.epoch])
        mark = xxh3_128_digest(body)
        if mark == self._last and bundle.first + bundle.count == self._next:
            return
        facts = {"task": self._task, "first": bundle.first, "next": self._next, "epoch": bundle.epoch}
        invariant(bundle.first == self._next, "a bundle begins where the last one ended", **facts)
        invariant(bundle.epoch >= max(sizes, default=0), "epochs rise", **facts)
        staged_bytes = sum(sizes.values()) + len(body)
        if staged_bytes > self._bytes_max + OVER_BYTES_MAX:
            raise PipelineError(
                f"{self._task}: {staged_bytes} bytes of rows wait for a checkpoint, which exceeds "
                f"staged_bytes_max, {self._bytes_max}, by more than the tolerated {OVER_BYTES_MAX}; emit less "
                "per record or window, or raise staged_bytes_max"
            )
        self._gather(bundle, mark)

    def truncate(self, epoch: int) -> None:
        """Do nothing: staged rows have no determinants, and the commit truncates the real store."""

    def close(self) -> None:
        """Release all resources; rows that were staged for a checkpoint remain staged."""
        self._inner.close()
        self._journal.close()
        self._objects = None
        self._keep([])
        self._forget()

    # -- causal.ports.StagingStore ------------------------------------------------------------------------

    def stage(self, epoch: int) -> None:
        """See `causal.ports.StagingStore.stage`."""
        with self._owned():
            if self._gathered and self._gathered[0][0].epoch < epoch:
                self._put()

    def commit(self, epoch: int) -> bool:
        """See `causal.ports.StagingStore.commit`."""
        if self._pending is None or self._pending.epoch >= epoch:
            with self._owned():
                self._pending = self._due(epoch)
        bundle = self._pending
        if bundle is None:
            self._inner.truncate(epoch)
            self._remove_visible(epoch)
            return False
        self._inner.write(bundle)  # may be retried with the same bundle
        self._visible, self._visible_digest = bundle.first + bundle.count, bundle.digest
        self._pending = None
        return True

    def staged(self) -> tuple[int, int]:
        """See `causal.ports.StagingStore.staged`."""
        return self._next - self._visible, sum((self._sizes or {}).values())

    def discard(self, epoch: int) -> StoreState:
        """See `causal.ports.StagingStore.discard`."""
        with self._owned():
            self._keep([each for each in self._gathered if each[0].epoch < epoch])
            gone = [entry for entry in self._entries if entry.epoch >= epoch]
            if gone:
                self._renew([entry for entry in self._entries if entry.epoch < epoch])
                self._store.remove([entry.name for entry in gone])
            self._forget()
        return self.last_bundle()

    # -- causal.ports.ReturningStore -------------------------------------------------------------------------

    def limit(self, rows: int) -> str:
        """See `causal.ports.ReturningStore.limit`."""
        return limit_of(self._inner, rows)

    def obstacle(self, next_: int) -> str:
        """See `causal.ports.ReturningStore.obstacle`; staged rows can always be discarded."""
        return obstacle(self._inner, next_)

    def return_to(self, next_: int, digest: int) -> StoreState:
        """See `causal.ports.ReturningStore.return_to`; all staged rows are discarded before visible rows are withdrawn.

        If the real store cannot return, no visible row may have to be withdrawn.
        """
        self.discard(0)
        store = self._inner
        if isinstance(store, ReturningStore) and (self._visible > next_ or not store.obstacle(next_)):
            state = store.return_to(next_, digest)
            self._visible, self._visible_digest = state.next, state.digest
            self._forget()
        return self.last_bundle()

    # -- objects -------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Fence all lower incarnations from the staged rows."""
        self._objects = self._place.connect()
        self._journal.prepare()
        with self._journal.locked():
            entries: list[Entry] = []
            while self._journal.is_there:
                entries = self._listed(self._journal.read())
                if self._journal.seize():
                    break
            self._renew(entries)
            named = {entry.name for entry in entries}
            self._store.remove_unfinished(self._place.folder)
            self._store.remove([name for name in self._older() if name not in named])

    def _older(self) -> list[str]:
        """Return the names of the row objects that processes of lower incarnations have created."""
        names = self._store.names(self._place.folder)
        return [name for name in names if int(name.rpartition("/")[2].partition("-")[0]) < self._incarnation]

    def _adopt(self) -> None:
        """Stage the rows that an earlier version staged in another form; this may be interrupted and repeated."""
        earlier = self._place.earlier
        if earlier is None:
            return
        for bundle in earlier.bundles():
            self._known()
            if bundle.first + bundle.count <= self._next:
                continue
            if bundle.first != self._next:
                break  # no complete checkpoint covers the bundle's epoch
            self._gather(replace(bundle, incarnation=self._incarnation), b"")
        with self._owned():
            if self._gathered:
                self._put()
            earlier.remove()

    def _gather(self, bundle: Bundle, mark: bytes) -> None:
        if self._gathered:
            if self._gathered[0][0].epoch != bundle.epoch or self._gathered_bytes + len(bundle.rows) > COMMIT_BYTES:
                with self._owned():
                    self._put()
        self._gathered.append((bundle, mark))
        self._gathered_bytes += len(bundle.rows)
        self._next, self._digest, self._last = bundle.first + bundle.count, bundle.digest, mark
        sizes = self._known()
        sizes[bundle.epoch] = sizes.get(bundle.epoch, 0) + len(bundle.rows)

    def _keep(self, gathered: list[tuple[Bundle, bytes]]) -> None:
        self._gathered, self._gathered_bytes = gathered, sum(len(bundle.rows) for bundle, _ in gathered)

    def _put(self) -> None:
        """Write the collected rows as an object, and name the object in the journal."""
        first, (last, mark) = self._gathered[0][0], self._gathered[-1]
        rows = b"".join([bundle.rows for bundle, _ in self._gathered])
        next_ = last.first + last.count
        name = f"{self._place.folder}/{self._incarnation:08d}-{self._token}-{first.first:012d}-{next_:012d}"
        # If the object already exists, it contains the same rows, because the token in its name belongs to this `open`.
        self._store.create(name, framed(rows), self._place.durable)
        entry = Entry(name, first.first, next_, last.digest, last.epoch, mark, len(rows))
        self._journal.append(encode(list(astuple(entry))))
        self._entries.append(entry)
        self._records += 1
        self._keep([])

    def _due(self, epoch: int) -> Bundle | None:
        """Return the rows of the first object of epochs below `epoch` that is not visible yet, or None."""
        staged = not self._gathered or self._gathered[0][0].epoch >= epoch
        invariant(staged, "rows are staged before their checkpoint is complete", task=self._task)
        for entry in self._entries:
            if entry.epoch < epoch and entry.next > self._visible:
                follows = entry.first == self._visible
                invariant(follows, "rows become visible in order", task=self._task, first=entry.first)
                count = entry.next - entry.first
                rows = self._rows_in(entry)
                return Bundle(entry.first, count, rows, entry.digest, entry.epoch, self._incarnation, ())
        return None

    def _rows_in(self, entry: Entry) -> bytes:
        where = self._store.where(entry.name)
        try:
            records, _ = bodies(self._store.read(entry.name), where)
        except Missing:
            self._journal.read()  # a newer process may have committed and removed the object
            raise
        if len(records) != 1 or len(records[0]) != entry.size:
            raise CorruptData(f"{where} does not have the rows that were staged; restore it from a copy")
        return records[0]

    def _remove_visible(self, epoch: int) -> None:
        """Remove the objects of epochs below `epoch`, whose rows are already visible."""
        visible = [entry for entry in self._entries if entry.epoch < epoch]
        if not visible:
            return
        if self._records > RECORDS_MAX or self._journal.is_due():
            with self._owned():
                self._renew([entry for entry in self._entries if entry.epoch >= epoch])
        self._entries = [entry for entry in self._entries if entry.epoch >= epoch]
        self._store.remove([entry.name for entry in visible])
        for each in [each for each in self._known() if each < epoch]:
            self._known().pop(each)

    # -- the journal ---------------------------------------------------------------------------------------

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Hold the journal while the state in memory matches it; the journal is read again if necessary.

        Raises:
            Fenced: a newer process is known to have claimed the journal.
        """
        with self._journal.locked():
            if not self._journal.is_ours(self._incarnation) or self._sizes is None:
                self._read()
            yield

    def _known(self) -> dict[int, int]:
        """Return the number of waiting bytes, keyed by epoch."""
        if self._sizes is None:
            with self._owned():
                pass
        invariant(self._sizes is not None, "what is staged is known", task=self._task)
        return self._sizes  # type: ignore[return-value]

    def _read(self) -> None:
        records = self._journal.read()
        self._entries, self._records = self._listed(records), len(records) - 1
        self._journal.cut()
        end = max([entry.next for entry in self._entries], default=self._visible)
        # Drop bundles that reached the journal although the answer was lost.
        self._keep([each for each in self._gathered if each[0].first >= end])
        sizes: dict[int, int] = {}
        self._next, self._digest, self._last = self._visible, self._visible_digest, b""
        ends = [(each.first, each.next, each.digest, each.epoch, each.mark, each.size) for each in self._entries]
        ends += [
            (each.first, each.first + each.count, each.digest, each.epoch, mark, len(each.rows))
            for each, mark in self._gathered
        ]
        for first, next_, digest, epoch, mark, size in ends:
            if first > self._next:
                raise CorruptData(f"{self._journal.where}: rows {self._next} to {first} are missing; restore them")
            if next_ > self._next:
                self._next, self._digest, self._last = next_, digest, mark
                sizes[epoch] = sizes.get(epoch, 0) + size
        self._sizes = sizes

    def _forget(self) -> None:
        """Discard the state in memory, so that the next step reads the journal again."""
        self._sizes = self._pending = None

    def _renew(self, entries: list[Entry]) -> None:
        """Replace the journal with one that contains only a state with these entries."""
        self._journal.renew(encode([self._task, self._run, self._incarnation, [list(astuple(e)) for e in entries]]))
        self._entries, self._records = entries, 0

    def _listed(self, records: Sequence[bytes]) -> list[Entry]:
        """Return the entries in the records of the journal.

        Raises:
            Fenced, PipelineError, CorruptData: this process may not succeed the process named in the first record.
        """
        try:
            # For directories, earlier versions of this package stored no list.
            task, run, incarnation, *listed = decode(records[0])
            task, run, incarnation = str(task), str(run), int(incarnation)
            entries: Iterable[Sequence[object]] = [*(listed[0] if listed else ()), *map(decode, records[1:])]
            stored = [Entry(*each) for each in entries]  # type: ignore[arg-type]
        except (CausalError, IndexError, TypeError, ValueError) as problem:
            raise CorruptData(f"{self._journal.where} is not a list of staged rows ({problem}); restore it") from None
        check_newest(self._journal.where, self._run, run)
        if (task, run) != (self._task, self._run):
            raise PipelineError(
                f"{self._journal.where} has staged rows of another job or run; resume that one (causal run "
                "PIPELINE.py --resume), or use another --state-dir"
            )
        if incarnation > self._incarnation:
            raise fenced(self._task, self._incarnation)
        return stored

    @property
    def _store(self) -> Objects:
        invariant(self._objects is not None, "a store is open before it is used", task=self._task)
        return self._objects  # type: ignore[return-value]
