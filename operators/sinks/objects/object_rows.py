"""The store of a sink task whose rows are in objects of a shared store, so that the task may move to another host.

A bundle, including its rows, is one record of the task's journal: this is the atomic step, and it takes one request.
Rows that have waited in the journal for `publish_s`, or that fill `file_bytes`, become one object that never changes. A
record called a *cut* first decides which rows belong to the object, so that every process that creates the object
stores the same rows under the same name.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from causal.errors import invariant
from causal.storage.object_journal import ObjectJournal
from causal.storage.shared import Depot
from operators.sinks.contract.account import check_newest
from operators.sinks.journaled.ledger import Entry, Ledger, covered, cut_record
from operators.sinks.journaled.rolling_store import RollingStore
from operators.sinks.objects import object_place
from operators.sinks.objects.object_place import RUNS, journal_folder, known_runs, make_room, rows_name


@dataclass(frozen=True, slots=True)
class Cutting:
    """The options that determine how rows become objects.

    Attributes:
        suffix: the suffix of the objects' names.
        existing: what to do with rows of an older run: "refuse" or "replace".
        file_bytes: the number of bytes of rows that are collected into one object.
        publish_s: the longest time that rows wait for others.
        sink: the name of the sink for messages.
    """

    url: str
    suffix: str
    existing: str | None
    file_bytes: int
    publish_s: float
    sink: str


class ObjectRows(RollingStore):
    """The store of one sink task: a journal in objects, and objects of rows. Only one thread may use it at a time."""

    _journal: ObjectJournal

    def __init__(self, task: str, cutting: Cutting) -> None:
        self._cutting = cutting
        self._depot: Depot | None = None
        self._waiting_since_s: float | None = None
        """The arrival of the oldest row that is in no object, in monotonic time."""
        super().__init__(task, ObjectJournal(task, journal_folder(task), cutting.url, self._connected), cutting.url)

    @abstractmethod
    def _packed(self, entries: Sequence[Entry], first: int, next_: int) -> bytes:
        """Return the content of the object that contains the rows of these bundles."""

    # -- the implementation of a journaled store ------------------------------------------------------------------

    @contextmanager
    def _room(self) -> Iterator[None]:
        self._waiting_since_s = None
        self._journal.prepare()
        cutting = self._cutting
        make_room(self._store, cutting.url, self._run, cutting.existing, cutting.sink, cutting.suffix)
        self._store.proof = RUNS
        yield
        check_newest(cutting.url, self._run, *known_runs(self._store))  # a newer run may have started before the claim

    def _claim(self) -> Ledger:
        if self._journal.is_there:
            run = Ledger.of(self._journal.read(), self._journal.where).account.run
            check_newest(self._cutting.url, self._run, run)
            if run != self._run:
                self._journal.void()  # an older run's process has written it belatedly
        return super()._claim()

    def _settle(self, ledger: Ledger) -> None:
        self._create_objects(ledger)

    def _make_way(self, ledger: Ledger) -> None:
        if self._due(ledger):
            self._publish_below(ledger, covered(ledger.account))
        elif self._journal.is_due(ledger.row_bytes):
            self._renew(ledger)

    def _release(self) -> None:
        super()._release()
        self._depot = None

    # -- objects -------------------------------------------------------------------------------------------

    def _connected(self) -> Depot:
        self._depot = object_place.connected(self._cutting.url, RUNS if self._expected else None)
        return self._depot

    @property
    def _store(self) -> Depot:
        invariant(self._depot is not None, "a store is open before it is used", task=self._task)
        return self._depot  # type: ignore[return-value]

    def _published(self, ledger: Ledger) -> int:
        return ledger.published

    def _due(self, ledger: Ledger) -> bool:
        """Return whether final rows fill an object, or the oldest row has waited long enough."""
        if not ledger.entries:
            self._waiting_since_s = None
            return False
        now_s = time.monotonic()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        waited = now_s - self._waiting_since_s >= self._cutting.publish_s
        return (waited or ledger.row_bytes >= self._cutting.file_bytes) and ledger.entries[0].next <= covered(
            ledger.account
        )

    def _publish_below(self, ledger: Ledger, below: int) -> None:
        """Decide which rows form an object, create the object, and rewrite the journal without these rows."""
        ready = _below(ledger.entries, below)
        if not ready:
            return
        self._journal.append(cut_record(ready[-1].next))
        ledger.cut(ready[-1].next)
        self._create_objects(ledger)
        self._waiting_since_s = None
        self._renew(ledger)

    def _create_objects(self, ledger: Ledger) -> None:
        """Create all objects that have been decided on; an object that already exists contains the same rows."""
        while ledger.cuts:
            first, next_ = ledger.cuts[0]
            entries = _below(ledger.entries, next_)
            reaches = bool(entries) and (entries[0].first, entries[-1].next) == (first, next_)
            invariant(reaches, "a cut has the rows of whole bundles", task=self._task, first=first, next=next_)
            name = rows_name(ledger.account.run, self._task, first, next_, self._cutting.suffix)
            self._store.create(name, self._packed(entries, first, next_))
            ledger.publish(next_)


def _below(entries: Iterable[Entry], position: int) -> list[Entry]:
    """Return the bundles whose rows are all below the given position."""
    return list(takewhile(lambda entry: entry.next <= position, entries))
