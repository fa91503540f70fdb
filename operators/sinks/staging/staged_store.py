"""The store of rows that wait until a complete checkpoint covers them (guarantee `epoch`).

    rows/<incarnation>-<token>-<first>-<next>   rows of one epoch, which never change
    the journal                                 which of them count, and whose they are

It puts our own rows in front of any sink's store.  `write` gathers bundles in memory, up to `COMMIT_BYTES`, or until
the barrier of their epoch: the sink's snapshot is acknowledged after that, and whatever no complete checkpoint covers
is performed again.  Then they become an object, and a record of the journal names it: from that record on they are
staged.  `commit` writes the objects of covered epochs to the real store by the ordinary protocol, and removes them.
The position of the real store shows the objects that it has taken, so the journal is not written then; it is renewed
after `RECORDS_MAX` records.  A commit may be interrupted anywhere and done again.

A younger process claims the journal before it opens the real store.  A zombie finds that with its next record, and the
real store refuses it as well.  It removes nothing that anyone needs: objects whose rows are visible, or those that it
has just taken out of the journal.  An object that it creates is in no record, and the next process removes it, by its
lower incarnation.

Bounds: in memory one object of about `COMMIT_BYTES`, and an entry per object.  At half of `bytes_max` the task asks for
a checkpoint, and sources hold back records until it is complete; rows of records that were under way by then may come
on top.  With `OVER_BYTES_MAX` more than `bytes_max`, which only rows of a few events can be that no checkpoint divides,
the job ends with a line about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from typing import Protocol
from uuid import uuid4

from xxhash import xxh3_128_digest

from causal.errors import CausalError, CorruptData, PipelineError, fenced, invariant
from causal.ports import Bundle, LastingStore, SinkStore, StoreState
from causal.records.values import decode, encode
from causal.storage.framing import bodies, framed
from causal.storage.journal import Journal
from causal.storage.objects import Missing, Objects
from operators.sinks.contract.account import check_newest

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
        digest: the rolling digest after its last row.
        mark: of the last bundle in it, by which that bundle is known when it comes again.
        size: of the rows, in bytes.
    """

    name: str
    first: int
    next: int
    digest: int
    epoch: int
    mark: bytes
    size: int


class Earlier(Protocol):
    """Rows that an earlier version of this package has staged in another form."""

    def bundles(self) -> Iterator[Bundle]:
        """Yield them in order, from any position on."""
        ...

    def remove(self) -> None:
        """Remove them: all that count are staged."""
        ...


@dataclass(frozen=True, slots=True)
class StagedPlace:
    """The place where the rows of one sink task wait.

    Attributes:
        folder: of the objects with rows.
        durable: whether staged rows survive a loss of power.
        connect: returns the place of the objects; called once per `open`, never before a fork.
        journal: returns the journal, which may use what the function that it is called with returns.
    """

    folder: str
    durable: bool
    connect: Callable[[], Objects]
    journal: Callable[[Callable[[], Objects]], Journal]
    earlier: Earlier | None = None


class StagedStore:
    """A causal.ports.StagingStore around the store of one sink task.  One thread at a time.

    Args:
        inner: where rows go when they are covered.
        bytes_max: what should be staged at most.

    State: what is in memory is read again after any failure (`_forget`).
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
        """See `causal.ports.SinkStore.open`: here first, then in the real store."""
        self.close()
        self._task, self._run, self._incarnation, self._token = task, run, incarnation, uuid4().hex[:12]
        self._claim()
        state = self._inner.open(task, run, incarnation)
        self._visible, self._visible_digest, self._visible_in = state.next, state.digest, state.place
        self._adopt()
        return self.last_bundle()

    def expect(self, counted: bool) -> None:
        """See `causal.ports.LastingStore.expect`: the real store exists, staged rows may not."""
        if isinstance(self._inner, LastingStore):
            self._inner.expect(counted)

    @property
    def refused(self) -> int:
        """The number of committed rows that the real store would not take."""
        return int(getattr(self._inner, "refused", 0))

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`: of the staged rows, which follow the visible ones."""
        with self._owned():
            return StoreState(self._next, self._digest, (), place=self._visible_in)

    def write(self, bundle: Bundle) -> None:
        """Stage the bundle; a younger process is found when its rows become an object.

        Raises: as `causal.ports.SinkStore.write`; PipelineError where too much is staged.
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
        """Release what is open; what was staged for a checkpoint stays."""
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
            self._keep([each for each in self._gathered if each[0].epoch < epoch])
            gone = [entry for entry in self._entries if entry.epoch >= epoch]
            if gone:
                self._renew([entry for entry in self._entries if entry.epoch < epoch])
                self._store.remove([entry.name for entry in gone])
            self._forget()
        return self.last_bundle()

    # -- objects -------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Fence every lower incarnation from what is staged."""
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
        """Return the objects of rows that processes of lower incarnations have created."""
        names = self._store.names(self._place.folder)
        return [name for name in names if int(name.rpartition("/")[2].partition("-")[0]) < self._incarnation]

    def _adopt(self) -> None:
        """Stage what an earlier version has staged in another form; it may be interrupted and repeated."""
        earlier = self._place.earlier
        if earlier is None:
            return
        for bundle in earlier.bundles():
            self._known()
            if bundle.first + bundle.count <= self._next:
                continue
            if bundle.first != self._next:
                break  # it is of epochs that no complete checkpoint covers
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
        """Write the gathered rows as an object, and name it in the journal."""
        first, (last, mark) = self._gathered[0][0], self._gathered[-1]
        rows = b"".join([bundle.rows for bundle, _ in self._gathered])
        next_ = last.first + last.count
        name = f"{self._place.folder}/{self._incarnation:08d}-{self._token}-{first.first:012d}-{next_:012d}"
        # An existing object has the same rows, because its token belongs to this `open`.
        self._store.create(name, framed(rows), self._place.durable)
        entry = Entry(name, first.first, next_, last.digest, last.epoch, mark, len(rows))
        self._journal.append(encode(list(astuple(entry))))
        self._entries.append(entry)
        self._records += 1
        self._keep([])

    def _due(self, epoch: int) -> Bundle | None:
        """Return the rows of the first object of epochs below `epoch` that are not visible yet, None if all are."""
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
            self._journal.read()  # a younger process may have committed and removed it
            raise
        if len(records) != 1 or len(records[0]) != entry.size:
            raise CorruptData(f"{where} does not have the rows that were staged; restore it from a copy")
        return records[0]

    def _remove_visible(self, epoch: int) -> None:
        """Remove the objects of epochs below `epoch`, whose rows are visible."""
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
        """Hold the journal, and have in memory what is in it; after an error it is read again.

        Raises:
            Fenced: a younger process has claimed it, as far as that is known before a step.
        """
        with self._journal.locked():
            if not self._journal.is_ours(self._incarnation) or self._sizes is None:
                self._read()
            yield

    def _known(self) -> dict[int, int]:
        """Return the bytes per epoch that wait."""
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
        self._keep([each for each in self._gathered if each[0].first >= end])  # a lost answer may have arrived
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
        """Make the next step read the journal again."""
        self._sizes = self._pending = None

    def _renew(self, entries: list[Entry]) -> None:
        """Replace the journal by a state with these entries."""
        self._journal.renew(encode([self._task, self._run, self._incarnation, [list(astuple(e)) for e in entries]]))
        self._entries, self._records = entries, 0

    def _listed(self, records: Sequence[bytes]) -> list[Entry]:
        """Return the entries in the records of the journal.

        Raises:
            Fenced, PipelineError, CorruptData: this process may not follow the one that the first record names.
        """
        try:
            task, run, incarnation, *listed = decode(records[0])  # earlier versions stored no list for directories
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
