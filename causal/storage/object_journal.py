"""The journal of one sink task in objects of a shared store: created if absent, never changed (D17).

An object is a record, `<folder>/<generation>/<number>`.  Each process that opens the journal begins a generation with a
state, and appends by creating the next number.  The rules that make it exact when a process dies or sleeps:

* *Seal.*  A successor first creates the record that the owner would create next.  The owner finds it there instead of
  creating its own: it has written nothing, and is fenced.  The highest number of each generation is never removed, so
  that holds for an owner that sleeps for a year.
* *A state ends what is before it.*  The owner removes records only after a newer state, a successor generations only
  after its own state.  So a live record is always higher than all that were removed.
* *Look again.*  A process that slept may create a name that was removed: a seal or a generation in the past.  So each
  step of an `open` counts only once a fresh list shows it as the last name of all.  A list must show what was created
  before it began: S3 and directories do.
* *An attempt without an answer* is read back.  What a process did not hear of is found when it reads the journal again
  before its next step; the random token in each record identifies its writer.
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
"""A journal with more records after its state is rewritten: each is one request for a process that opens it."""
READS_MAX = 20
SEALS_MAX = 10_000
"""The most records that an owner may append while its successor seals its generation."""
_STATE, _RECORD, _SEAL, _VOID = "state", "record", "seal", "void"
_KINDS = (_STATE, _RECORD, _SEAL, _VOID)
_NAME = re.compile(r"(\d{8})/(\d{12})")
Place = tuple[int, int]
"""A generation and a number in it."""


@dataclass(frozen=True, slots=True)
class Record:
    """One object of a journal.

    Attributes:
        owner: the token of the process that created it.
        state_at: the number of the newest state at or before it, in its generation; -1 in a seal, which may not know.
        kind: a state, a record after one, a seal; or void: what is before it does not count any more.
    """

    place: Place
    owner: str
    state_at: int
    kind: str
    body: bytes

    @property
    def closed(self) -> bool:
        """Whether no process may append after it."""
        return self.kind in (_SEAL, _VOID)

    def packed(self) -> bytes:
        """Return the content of the object."""
        return framed(encode([self.owner, self.state_at, self.kind, self.body]))


def read_record(place: Place, stored: bytes, where: str) -> Record:
    """Return the record in the content of an object.

    Raises:
        CorruptData: it is damaged; names it as `where`.
    """
    try:
        (body,), size = bodies(stored, where)
        if size != len(stored):
            raise ValueError("more bytes follow the record")
        owner, state_at, kind, content = decode(body)
        if not (isinstance(owner, str) and type(state_at) is int and kind in _KINDS and isinstance(content, bytes)):
            raise ValueError("its parts have other types")
        return Record(place, owner, state_at, kind, content)
    except (CausalError, TypeError, ValueError) as problem:
        raise CorruptData(f"{where} is no whole record ({problem}); restore it") from None


class JournalObjects:
    """A reader of one journal, for its owner, a successor or anybody; it changes nothing.

    State: `last` is the last record as of the last `read`, None without a journal; `behind` are the names that were not
    needed any more then.
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
        """Return the place of the last present record."""
        matches = [_NAME.fullmatch(name[len(self._folder) + 1 :]) for name in self._objects.names(self._folder)]
        self._places = sorted((int(match[1]), int(match[2])) for match in matches if match is not None)
        return self._places[-1] if self._places else None

    def read(self) -> list[bytes]:
        """Return the bodies of the last state and of the records after it; none without a journal, or where it is void.

        Raises:
            CorruptData: an object is damaged.
            Unavailable: the store does not answer, or the journal grows faster than it can be read.
        """
        for _ in range(READS_MAX):
            place = self.look()
            try:
                records = [] if place is None else self._records(place)
            except Missing:
                continue  # a newer state has taken their place
            self._known = {record.place: record for record in records}
            self.last = records[-1] if records else None
            self.behind = self._unneeded(records[0].place) if records else []
            return [record.body for record in records if not record.closed]
        raise Unavailable(f"{self._objects.url}: {self._folder} changes faster than it can be read; it is tried again")

    def pass_over(self, first: Place) -> None:
        """Forget what was read: a state at that place, which was found last, has all of it."""
        self._known = {}
        self.behind = self._unneeded(first)

    def _unneeded(self, first: Place) -> list[str]:
        """Return the names before the state, except the last of each generation: there its owner would continue."""
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
            raise CorruptData(f"{self._label(wanted[0])} is no state; restore it")
        return records

    def _record(self, place: Place) -> Record:
        if place not in self._known:
            self._known[place] = self._parsed(place, self._objects.read(self.name(place)))
        return self._known[place]

    def _parsed(self, place: Place, stored: bytes) -> Record:
        return read_record(place, stored, self._label(place))

    def existing(self, place: Place) -> Record:
        """Return the record that another attempt has created at that place.

        Raises:
            Missing: it is gone again.
        """
        return self._parsed(place, self._objects.read(self.name(place)))

    def _label(self, place: Place) -> str:
        return f"{self._objects.url}: {self.name(place)}"


class ObjectJournal:
    """The journal of one sink task after a `JournaledStore`. One thread at a time.

    Args:
        folder: of the journal, in the store.
        place: what people know the store by; errors name it.
        connect: returns the client of the store; called once per `open`, never before a fork.

    State: `forget` is as for `Journal`; `generation` is the one that this process owns, 0 for none.
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
        """The records that `is_there` has read, for the `read` that follows."""
        self._token = ""
        self._incarnation = -1
        self._next = self._state_at = 0
        self._bytes = self._bytes_new = 0

    @property
    def where(self) -> str:
        """The journal, as errors name it."""
        return f"{self._place}: {self._folder}"

    def prepare(self) -> None:
        """Connect to the store."""
        self.close()
        self._objects = self._connect()
        self._reader = JournalObjects(self._objects, self._folder)
        self._token = uuid4().hex

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make any error inside but a refused row discard what is in memory; no lock: a creation is the step."""
        try:
            yield
        except RowRefused:
            raise  # before anything was changed
        except BaseException:
            self.forget()
            raise

    def is_ours(self, incarnation: int) -> bool:
        """Return whether this process owns a generation; whether another has sealed it is found by the next step.

        Raises:
            Unavailable: nothing is open.
        """
        if not self.generation:
            raise Unavailable(f"the store of sink task {self._task} is not open; open it first")
        self._incarnation = incarnation
        return True

    @property
    def is_there(self) -> bool:
        """Whether there is a journal, by any process, that counts."""
        self._ahead = self._reading.read()
        last = self._reading.last
        return last is not None and last.kind != _VOID

    @property
    def has_grown(self) -> bool:
        """Whether there is anything after the state."""
        return self._next > self._state_at + 1

    def is_due(self, spare: int = 0) -> bool:
        """Return whether it should be rewritten; `spare` are bytes that would not go away by that."""
        large = self._bytes > max(JOURNAL_BYTES_MAX, 2 * self._bytes_new) + spare
        return large or self._next - self._state_at > RECORDS_MAX

    def read(self) -> list[bytes]:
        """Return the present records.

        Raises:
            Fenced: this process was the owner, and another is.
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
        """Seal the journal after what was read; true once what was read ends with a seal."""
        last = self._reading.last
        if last is None or last.closed:
            return True
        generation, number = last.place
        for at in range(number + 1, number + SEALS_MAX):
            other = self._create(Record((generation, at), self._token, -1, _SEAL, b""))
            if other is None or other.kind == _SEAL:
                break
        else:
            raise Unavailable(f"{self.where} grows faster than it can be sealed; it is tried again")
        return False

    def cut(self) -> None:
        """Do nothing: an object is there as a whole or not at all."""

    def append(self, body: bytes) -> None:
        """Create the next record.

        Raises:
            Fenced: another process has sealed the generation; nothing was written.
            Unavailable: it may be there or not; the journal is to be read again.
        """
        self._append(_RECORD, body)

    def renew(self, body: bytes) -> None:
        """Create a state: of the owner after its records; otherwise a generation, after one that is sealed."""
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
        """Void the existing records, and fence the process that writes them."""
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
        """Create the first record of the next generation, and look whether it is the last of all."""
        place, self._ahead = self._following, None
        if self._create(Record(place, self._token, 0, kind, body)) is not None or self._reading.look() != place:
            raise Unavailable(f"{self.where} is being opened by another process at the same time; it is tried again")
        self._reading.pass_over(place)

    def _append(self, kind: str, body: bytes) -> None:
        state_at = self._next if kind == _STATE else self._state_at
        record = Record((self.generation, self._next), self._token, state_at, kind, body)
        other = self._create(record)
        if other is not None:
            if other.owner == self._token:
                raise Unavailable(f"{self.where}: an attempt without an answer has arrived late; it is read again")
            raise self._fenced()
        self._next, self._state_at = self._next + 1, state_at
        self._bytes += len(body)
        if kind == _STATE:
            self._bytes = self._bytes_new = len(body)

    def _create(self, record: Record) -> Record | None:
        """Create a record; returns the existing one if it differs."""
        if self._open.create(self._reading.name(record.place), record.packed()):
            return None
        try:
            other = self._reading.existing(record.place)
        except Missing:
            raise Unavailable(f"{self.where} was changed by another process meanwhile; it is read again") from None
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
