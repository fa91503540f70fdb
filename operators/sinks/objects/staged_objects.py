"""The store of rows that wait in the shared store until a complete checkpoint covers them (guarantee `epoch`).

    staged/<task>/rows/<incarnation>-<token>-<first>-<next>   rows of one epoch, which never change
    staged/<task>/journal/…                                   which of them count (`journaled.shared_journal`)

Rows are gathered in memory, up to `COMMIT_BYTES`, or until the barrier of their epoch: the sink's snapshot is
acknowledged after that, and whatever no complete checkpoint covers is performed again.  Then they become an object, and
a record of the journal names it: from that record on they are staged.  A commit writes the objects of covered epochs
to the real store, renews the journal without them, and removes them.

A younger process seals the journal before it opens the real store. A zombie finds that with its next record, and only a
process that has just renewed the journal removes objects that it does not name; an object that a zombie creates is in
no record. Unnamed objects of a dead process are removed by the next one, by their lower incarnation.

In memory: one object of about `COMMIT_BYTES`, and an entry per object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from uuid import uuid4

from xxhash import xxh3_128_digest

from causal.errors import CausalError, CorruptData, invariant
from causal.ports import Bundle, SinkStore
from causal.records.values import decode, encode
from causal.storage.framing import bodies, framed
from causal.storage.object_journal import ObjectJournal
from causal.storage.objects import Missing, Objects
from operators.sinks.contract.staging import COMMIT_BYTES, StagedRows

DIRECTORY = "staged"


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


class SharedStagedStore(StagedRows):
    """Staged rows in the storage that the hosts of a job share.

    Args:
        inner: where rows go when they are covered.
        task: whose rows they are.
        bytes_max: what should be staged at most.
        place: the store and the run's place in it; errors name it.
        connect: returns the client of the store; called once per `open`, never before a fork.
    """

    def __init__(self, inner: SinkStore, task: str, bytes_max: int, place: str, connect: Callable[[], Objects]) -> None:
        super().__init__(inner, bytes_max)
        self._folder = f"{DIRECTORY}/{task.replace('/', '-')}"
        self._connect = connect
        self._place = place
        self._run = self._token = ""
        self._objects: Objects | None = None
        self._entries: list[Entry] = []
        self._gathered: list[tuple[Bundle, bytes]] = []
        """Bundles of one epoch that are in no object yet, each with its mark."""
        self._journal = ObjectJournal(task, f"{self._folder}/journal", place, self._connected)
        self._journal.forget = self._forget

    def stage(self, epoch: int) -> None:
        """See `causal.ports.StagingStore.stage`."""
        with self._owned():
            self._read()
            if self._gathered and self._gathered[0][0].epoch < epoch:
                self._put()

    # -- objects -------------------------------------------------------------------------------------------

    def _claim(self, run: str) -> None:
        self._run, self._token = run, uuid4().hex[:12]
        self._journal.prepare()
        with self._journal.locked():
            entries: list[Entry] = []
            while self._journal.is_there:
                records = self._journal.read()
                self._check_owner(records[0], run, self._journal.where)
                entries = self._listed(records)
                if self._journal.seize():
                    break
            self._renew(entries)
            named = {entry.name for entry in entries}
            self._store.remove([name for name in self._older() if name not in named])

    def _older(self) -> list[str]:
        """Return the objects of rows that processes of lower incarnations have created."""
        names = self._store.names(f"{self._folder}/rows")
        return [name for name in names if int(name.rpartition("/")[2].partition("-")[0]) < self._incarnation]

    def _release(self) -> None:
        self._journal.close()
        self._objects = None
        self._gathered = []

    @contextmanager
    def _owned(self) -> Iterator[None]:
        with self._journal.locked():
            self._journal.is_ours(self._incarnation)
            yield

    _guarded = _owned

    def _read(self) -> dict[int, int]:
        if self._sizes is not None:
            return self._sizes
        self._entries = self._listed(self._journal.read())
        end = self._entries[-1].next if self._entries else self._visible
        self._gathered = [each for each in self._gathered if each[0].first >= end]  # a lost answer may have arrived
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
        return sizes

    def _epochs(self) -> list[int]:
        return sorted(self._read())

    def _keep(self, bundle: Bundle, body: bytes) -> int:
        gathered_bytes = sum(len(each.rows) for each, _ in self._gathered)
        if self._gathered and (
            self._gathered[0][0].epoch != bundle.epoch or gathered_bytes + len(bundle.rows) > COMMIT_BYTES
        ):
            self._put()
        self._gathered.append((bundle, xxh3_128_digest(body)))
        return len(bundle.rows)

    def _put(self) -> None:
        """Write the gathered rows as an object, and name it in the journal."""
        first, (last, mark) = self._gathered[0][0], self._gathered[-1]
        rows = b"".join(bundle.rows for bundle, _ in self._gathered)
        next_ = last.first + last.count
        name = f"{self._folder}/rows/{self._incarnation:08d}-{self._token}-{first.first:012d}-{next_:012d}"
        self._store.create(name, framed(rows))  # one that is there has the same rows: the token is of this `open`
        entry = Entry(name, first.first, next_, last.digest, last.epoch, mark, len(rows))
        self._journal.append(encode(list(astuple(entry))))
        self._entries.append(entry)
        self._gathered = []
        if self._journal.is_due():
            self._renew(self._entries)

    def _bundles(self, epochs: list[int]) -> Iterator[Bundle]:
        """Yield one bundle per object."""
        gathered = {bundle.epoch for bundle, _ in self._gathered}
        invariant(not gathered & set(epochs), "rows are staged before their checkpoint is complete", task=self._task)
        for entry in list(self._entries):
            if entry.epoch not in epochs or entry.next <= self._visible:
                continue
            where = f"{self._place}: {entry.name}"
            invariant(entry.first == self._visible, "rows become visible in order", task=self._task, first=entry.first)
            records, _ = bodies(self._rows_in(entry), where)
            if len(records) != 1 or len(records[0]) != entry.size:
                raise CorruptData(f"{where} has not the rows that were staged; restore it from a copy")
            count = entry.next - entry.first
            yield Bundle(entry.first, count, records[0], entry.digest, entry.epoch, self._incarnation, ())

    def _rows_in(self, entry: Entry) -> bytes:
        """Return the content of an object; where it is missing, a younger process may have committed and removed it."""
        try:
            return self._store.read(entry.name)
        except Missing:
            self._journal.read()
            raise

    def _remove(self, epochs: list[int]) -> None:
        with self._owned():
            self._read()
            self._gathered = [each for each in self._gathered if each[0].epoch not in epochs]
            gone = [entry for entry in self._entries if entry.epoch in epochs]
            if gone:
                self._renew([entry for entry in self._entries if entry.epoch not in epochs])
                self._store.remove([entry.name for entry in gone])
            for epoch in epochs:
                if self._sizes is not None:
                    self._sizes.pop(epoch, None)

    def _renew(self, entries: list[Entry]) -> None:
        """Replace the journal by a state with these entries."""
        self._journal.renew(encode([self._task, self._run, self._incarnation, [list(astuple(e)) for e in entries]]))
        self._entries = entries

    def _listed(self, records: list[bytes]) -> list[Entry]:
        """Return the entries in the records of the journal."""
        try:
            listed = [*decode(records[0])[3], *map(decode, records[1:])]
            return [Entry(*each) for each in listed]
        except (CausalError, IndexError, TypeError, ValueError) as problem:
            raise CorruptData(f"{self._journal.where} is no list of staged rows ({problem}); restore it") from None

    def _connected(self) -> Objects:
        self._objects = self._connect()
        return self._objects

    @property
    def _store(self) -> Objects:
        invariant(self._objects is not None, "a store is open before it is used", task=self._task)
        return self._objects  # type: ignore[return-value]
