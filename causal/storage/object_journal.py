"""The journal of one sink task as objects in a shared store, which are created if absent and never changed (D17).

An object is a record, `<folder>/<generation>/<number>`. Each process that opens the journal begins a generation with a
state, and appends a record by creating the object with the next number. The following rules keep the journal exact if a
process dies or stalls:

* *Seal.* A successor first creates the record that the owner would create next. When the owner tries to create its own
  record, it detects the seal. It has then written nothing, and is fenced. The highest number of each generation is
  never removed, so this works even if the owner stalls for a year.
* *A state replaces the records before it.* The owner removes records only after it has created a newer state, and a
  successor removes generations only after it has created its own state. Therefore, a live record always has a higher
  place than all removed records.
* *Look again.* A stalled process may create a name that was removed: a seal or a generation in the past. Therefore,
  each step of `open` counts only once a new listing shows its object as the last of all names. A listing must contain
  every object created before the listing began, which is the case for S3 and for directories.
* *An attempt without an answer* is read back. If the answer to a creation was lost, the process detects the object when
  it reads the journal again before its next step. The random token in each record identifies the writer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from causal.errors import CausalError, CorruptData, Fenced, RowRefused, Unavailable, fenced, invariant
from causal.records.values import decode, encode
from causal.storage.file_journal import JOURNAL_BYTES_MAX
from causal.storage.framing import bodies, framed
from causal.storage.objects import Missing, Objects

RECORDS_MAX = 256
"""The number of records after the state above which a journal is rewritten, because reading each takes a request."""
READS_MAX = 20
SEALS_MAX = 10_000
"""The maximum number of records that an owner may append while a successor seals the owner's generation."""
_STATE, _RECORD, _SEAL, _VOID = "state", "record", "seal", "void"
_KINDS = (_STATE, _RECORD, _SEAL, _VOID)
_NAME = re.compile(r"(\d{8})/(\d{12})")
Place = tuple[int, int]
"""A generation, and the number of a record in it."""


@dataclass(frozen=True, slots=True)
class Record:
    """One object of a journal.

    Attributes:
        owner: the token of the process that created the object.
        state_at: the number of the newest state at or before this record in its generation; -1 in a seal, because its
            writer may not know that number.
        kind: a state, a record after a state, a seal, or void, which invalidates all records before it.
    """

    place: Place
    owner: str
    state_at: int
    kind: str
    body: bytes

    @property
    def closed(self) -> bool:
        """Whether no process may append a record after this one."""
        return self.kind in (_SEAL, _VOID)

    def packed(self) -> bytes:
        """Return the content of the object."""
        return framed(encode([self.owner, self.state_at, self.kind, self.body]))


def read_record(place: Place, stored: bytes, where: str) -> Record:
    """Return the record in the content of an object.

    Raises:
        CorruptData: the object is damaged; the error refers to it as `where`.
    """
    try:
        (body,), size = bodies(stored, where)
        if size != len(stored):
            raise ValueError("more bytes follow the record")
        owner, state_at, kind, content = decode(body)
        if not (isinstance(owner, str) and type(state_at) is int and kind in _KINDS and isinstance(content, bytes)):
            raise ValueError("its parts have unexpected types")
        return Record(place, owner, state_at, kind, content)
    except (CausalError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where} is not a complete record ({problem}); restore it") from None


class JournalObjects:
    """A reader of one journal, for its owner, a successor or any other process; it does not change the journal.

    State: `last` is the last record as of the last `read`, or None if there was no journal. `behind` contains the names
    that were no longer needed at that time.
    """

    def __init__(self, objects: Objects, folder: str) -> None:
        self.last: Record | None = None
        self.behind: list[str] = []
        self._objects = objects
        self._folder = folder
        self._known: dict[Place, Record] = {}
        self._places: list[Place] = []

    def name(self, place: Place) -> str:
        """Return the name of an object."""
        return f"{self._folder}/{place[0]:08d}/{place[1]:012d}"

    def look(self) -> Place | None:
        """Return the place of the last existing record, or None."""
        matches = [_NAME.fullmatch(name[len(self._folder) + 1 :]) for name in self._objects.names(self._folder)]
        self._places = sorted((int(match[1]), int(match[2])) for match in matches if match is not None)
        return self._places[-1] if self._places else None

    def read(self) -> list[bytes]:
        """Return the bodies of the last state and the records after it; none if there is no journal or it is void.

        Raises:
            CorruptData: an object is damaged.
            Unavailable: the store does not answer, or the journal grows faster than it can be read.
        """
        for _ in range(READS_MAX):
            place = self.look()
            try:
                records = [] if place is None else self._records(place)
            except Missing:
                continue  # the owner has meanwhile replaced these records with a newer state
            self._known = {record.place: record for record in records}
            self.last = records[-1] if records else None
            self.behind = self._unneeded(records[0].place) if records else []
            return [record.body for record in records if not record.closed]
        raise Unavailable(
            f"{self._objects.url}: {self._folder} changes faster than it can be read; the read is retried"
        )

    def pass_over(self, first: Place) -> None:
        """Forget the records read so far, because the new state at `first` replaces them."""
        self._known = {}
        self.behind = self._unneeded(first)

    def _unneeded(self, first: Place) -> list[str]:
        """Return the names before the state, except each generation's last name, after which its owner would append."""
        following = zip(self._places, self._places[1:], strict=False)
        return [self.name(each) for each, after in following if each < first and each[0] == after[0]]

    def _records(self, last: Place) -> list[Record]:
        head = self._record(last)
        if head.kind == _VOID:
            return [head]
        generation, number = last
        state_at = head.state_at if head.kind != _SEAL else self._record((generation, number - 1)).state_at
        wanted = [(generation, at) for at in range(state_at, number)]
        fresh = [place for place in wanted if place not in self._known]
        stored = self._objects.read_all([self.name(place) for place in fresh])
        self._known |= {place: self._parsed(place, data) for place, data in zip(fresh, stored, strict=True)}
        records = [*(self._known[place] for place in wanted), head]
        if records[0].kind != _STATE:
            raise CorruptData(f"{self._label(wanted[0])} is not a valid state; restore it")
        return records

    def _record(self, place: Place) -> Record:
        if place not in self._known:
            self._known[place] = self._parsed(place, self._objects.read(self.name(place)))
        return self._known[place]

    def _parsed(self, place: Place, stored: bytes) -> Record:
        return read_record(place, stored, self._label(place))

    def existing(self, place: Place) -> Record:
        """Return the record that another attempt has created at this place.

        Raises:
            Missing: the record has since been removed.
        """
        return self._parsed(place, self._objects.read(self.name(place)))

    def _label(self, place: Place) -> str:
        return f"{self._objects.url}: {self.name(place)}"


class ObjectJournal:
    """The journal of one sink task, used by a `JournaledStore`, by one thread at a time.

    Args:
        folder: the folder of the journal in the store.
        place: the location by which users know the store, for errors.
        connect: a function that returns a client of the store; it is called once per `open`, and never before a fork.

    State: `forget` is as for `Journal`; `generation` is the generation that this process owns, or 0 if it owns none.
    """

    def __init__(self, task: str, folder: str, place: str, connect: Callable[[], Objects]) -> None:
        self.forget: Callable[[], None] = _nothing
        self.generation = 0
        self._task = task
        self._folder = folder
        self._place = place
        self._connect = connect
        self._objects: Objects | None = None
        self._reader: JournalObjects | None = None
        self._ahead: list[bytes] | None = None
        """The records that `is_there` has read, which the following call of `read` returns."""
        self._token = ""
        self._incarnation = -1
        self._next = self._state_at = 0
        self._bytes = self._bytes_new = 0

    @property
    def where(self) -> str:
        """The name of the journal in errors."""
        return f"{self._place}: {self._folder}"

    def prepare(self) -> None:
        """Connect to the store."""
        self.close()
        self._objects = self._connect()
        self._reader = JournalObjects(self._objects, self._folder)
        self._token = uuid4().hex

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Discard the data in memory after any error except a refused row.

        No lock is necessary, because each step is the creation of an object.
        """
        try:
            yield
        except RowRefused:
            raise  # a row is refused before anything is changed
        except BaseException:
            self.forget()
            raise

    def is_ours(self, incarnation: int) -> bool:
        """Return whether this process owns a generation; the next step detects whether another process has sealed it.

        Raises:
            Unavailable: no journal is open.
        """
        if not self.generation:
            raise Unavailable(f"the store of sink task {self._task} is not open; open it first")
        self._incarnation = incarnation
        return True

    @property
    def is_there(self) -> bool:
        """Whether a valid journal exists, regardless of which process created it."""
        self._ahead = self._reading.read()
        last = self._reading.last
        return last is not None and last.kind != _VOID

    @property
    def has_grown(self) -> bool:
        """Whether the journal contains anything after its state."""
        return self._next > self._state_at + 1

    def is_due(self, spare: int = 0) -> bool:
        """Return whether the journal should be rewritten; `spare` is the number of bytes that a rewrite would keep."""
        large = self._bytes > max(JOURNAL_BYTES_MAX, 2 * self._bytes_new) + spare
        return large or self._next - self._state_at > RECORDS_MAX

    def read(self) -> list[bytes]:
        """Return the current records.

        Raises:
            Fenced: this process was the owner, but another process is the owner now.
        """
        records, self._ahead = self._reading.read() if self._ahead is None else self._ahead, None
        last = self._reading.last
        if self.generation:
            if last is None or (last.place[0], last.owner) != (self.generation, self._token):
                raise self._fenced()
            self._next, self._state_at = last.place[1] + 1, last.state_at
            self._bytes = sum(map(len, records))
            self._bytes_new = len(records[0])
        return records

    def seize(self) -> bool:
        """Seal the journal after the records read last; return whether those already end with a seal."""
        last = self._reading.last
        if last is None or last.closed:
            return True
        generation, number = last.place
        for at in range(number + 1, number + SEALS_MAX):
            other = self._create(Record((generation, at), self._token, -1, _SEAL, b""))
            if other is None or other.kind == _SEAL:
                break
        else:
            raise Unavailable(f"{self.where} grows faster than it can be sealed; the seal is retried")
        return False

    def cut(self) -> None:
        """Do nothing, because an object exists either completely or not at all."""

    def append(self, body: bytes) -> None:
        """Create the next record.

        Raises:
            Fenced: another process has sealed the generation; nothing was written.
            Unavailable: it is unknown whether the record exists; the journal has to be read again.
        """
        self._append(_RECORD, body)

    def renew(self, body: bytes) -> None:
        """Create a state.

        The owner creates it after its own records; any other process begins a new generation after the sealed one.
        """
        if self.generation:
            behind = [self._reading.name((self.generation, at)) for at in range(self._state_at, self._next)]
            self._append(_STATE, body)
            self._open.remove([*behind, *self._reading.behind])
            self._reading.behind = []
            return
        self._begin(_STATE, body)
        self.generation = self._following[0]
        self._next, self._state_at, self._bytes, self._bytes_new = 1, 0, len(body), len(body)

    def void(self) -> None:
        """Invalidate the existing records, and fence the process that writes them."""
        while self.is_there:
            if self.seize():
                self._begin(_VOID, b"")

    def close(self) -> None:
        """Forget the client and the generation."""
        self._objects = self._reader = self._ahead = None
        self.generation = 0

    # -- steps -------------------------------------------------------------------------------------------

    @property
    def _following(self) -> Place:
        last = self._reading.last
        return (1 if last is None else last.place[0] + 1, 0)

    def _begin(self, kind: str, body: bytes) -> None:
        """Create the first record of the next generation, and check that it is the last of all records."""
        place, self._ahead = self._following, None
        if self._create(Record(place, self._token, 0, kind, body)) is not None or self._reading.look() != place:
            raise Unavailable(
                f"{self.where} is being opened by another process at the same time; opening it is retried"
            )
        self._reading.pass_over(place)

    def _append(self, kind: str, body: bytes) -> None:
        state_at = self._next if kind == _STATE else self._state_at
        record = Record((self.generation, self._next), self._token, state_at, kind, body)
        other = self._create(record)
        if other is not None:
            if other.owner == self._token:
                raise Unavailable(f"{self.where}: an unanswered write has taken effect late; the journal is read again")
            raise self._fenced()
        self._next, self._state_at = self._next + 1, state_at
        self._bytes += len(body)
        if kind == _STATE:
            self._bytes = self._bytes_new = len(body)

    def _create(self, record: Record) -> Record | None:
        """Create a record; return None if it now exists with this content, and otherwise the existing record."""
        if self._open.create(self._reading.name(record.place), record.packed()):
            return None
        try:
            other = self._reading.existing(record.place)
        except Missing:
            raise Unavailable(
                f"{self.where} was changed by another process in the meantime; the journal is read again"
            ) from None
        return None if other == record else other

    def _fenced(self) -> Fenced:
        return fenced(self._task, self._incarnation)

    @property
    def _open(self) -> Objects:
        invariant(self._objects is not None, "a journal is prepared before it is used", task=self._task)
        return self._objects  # type: ignore[return-value]

    @property
    def _reading(self) -> JournalObjects:
        invariant(self._reader is not None, "a journal is prepared before it is used", task=self._task)
        return self._reader  # type: ignore[return-value]


def _nothing() -> None:
    """Do nothing."""
