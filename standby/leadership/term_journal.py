"""The procedures by which supervisors use terms and journals in the shared store.

Each procedure is a pure generator that yields requests to the store and is sent the answers, so that a simulator can
insert any event between two requests.  A request that fails ends the procedure with the exception.  Every procedure may
be repeated from its beginning, no matter which of its requests have already been performed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from causal.errors import CorruptData, Fenced
from standby.leadership.terms import (
    ENDED,
    STOPPED,
    TERMS,
    Entry,
    Term,
    entry_name,
    journal_folder,
    number_of,
    term_name,
)
from standby.supervision.effects import Record


@dataclass(frozen=True, slots=True)
class Names:
    """A request for the sorted names in a folder."""

    folder: str


@dataclass(frozen=True, slots=True)
class Read:
    """A request for the content of an object; the answer is None if there is no such object."""

    name: str


@dataclass(frozen=True, slots=True)
class Create:
    """A request to create an object; the answer is whether the object is new."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Remove:
    """A request to remove objects; an object that remains only wastes space."""

    names: tuple[str, ...]


Request = Names | Read | Create | Remove
Result = TypeVar("Result")
Procedure = Generator[Request, Any, Result]


UNBEGUN_MAX = 5
"""The largest number of terms without a leader that a candidate counts."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """The newest term and the last entry of its journal, as a candidate saw them.

    Attributes:
        place: the place of the last entry; -1 if the journal is empty.
        entry: the last entry; None if there is none.
        unbegun: how many terms just before this one were won by supervisors that then led nothing, as known when the
            term is new; at most `UNBEGUN_MAX`.
    """

    term: Term
    place: int = -1
    entry: Entry | None = None
    unbegun: int = 0


@dataclass(frozen=True, slots=True)
class Inherited:
    """The decisions of a sealed term, and the place at which they end; the term is 0 for a job that has just begun.

    Attributes:
        job, graph: the settings and the graph to which the decisions apply; empty for term 0.
        closing: why the leader stopped writing; empty if it recorded no reason.
    """

    records: tuple[Record, ...] = ()
    term: int = 0
    place: int = -1
    job: str = ""
    graph: str = ""
    closing: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether no supervisor has ended the job's processes, in which case they may still be running."""
        return self.term > 0 and self.closing not in (ENDED, STOPPED)


def looked(known: Sighting | None) -> Procedure[Sighting | None]:
    """Find the newest term and return it; None if there is no term yet.

    Args:
        known: the result of the last call; objects never change, so those that are known are not read a second time.
    """
    if known is not None:
        seen = yield from _journal_of(known.term, known)
        if seen.place != known.place and seen.entry is not None and not seen.entry.sealed_by:
            return seen  # the leader is alive, so there is no need to look for a newer term
    terms = yield Names(TERMS)
    if not terms:
        return None
    if known is not None and known.term.number == number_of(terms[-1]):
        return known if seen.place == known.place else seen
    term = Term.read(terms[-1], (yield from _existing(terms[-1])))
    newest = yield from _journal_of(term, None)
    return replace(newest, unbegun=(yield from _unbegun(term.number))) if newest.place <= 0 else newest


def _unbegun(number: int) -> Procedure[int]:
    """Count the terms just before `number` whose journals contain nothing, or only the seal of another supervisor."""
    for count, earlier in enumerate(range(number - 1, max(0, number - 1 - UNBEGUN_MAX), -1)):
        entries = yield Names(journal_folder(earlier))
        if entries and number_of(entries[-1]) > 0:
            return count
    return min(number - 1, UNBEGUN_MAX)


def _journal_of(term: Term, known: Sighting | None) -> Procedure[Sighting]:
    """Look up the last entry of a term's journal."""
    entries = yield Names(journal_folder(term.number))
    if not entries:
        return Sighting(term)
    place = number_of(entries[-1])
    if known is not None and known.place == place:
        return known
    # `data` is None if the leader has meanwhile removed the entry, in which case there are newer entries.
    data = yield Read(entries[-1])
    return Sighting(term, place, None if data is None else Entry.read(entries[-1], data))


def elected(term: Term) -> Procedure[bool]:
    """Stand for election; return whether this supervisor has won the term.

    If the answer to the creation was lost, the content of the existing object shows which supervisor created it.
    """
    name, data = term_name(term.number), term.data()
    if (yield Create(name, data)):
        return True
    return bool((yield from _existing(name)) == data)


def inherited(number: int, won: bool = True) -> Procedure[Inherited]:
    """Seal the journals of the terms before `number`, newest first, up to one with an entry; return its decisions.

    The newest journal with an entry contains all decisions, because its leader began it with the earlier ones.

    Args:
        won: whether this supervisor has won term `number`; otherwise that term does not exist yet, and another
            supervisor may win it.

    Raises:
        Fenced: a supervisor with a higher term has removed an entry that had to be read.
        CorruptData: an entry is missing although no supervisor has removed it.
    """
    for earlier in range(number - 1, 0, -1):
        place = yield from _sealed(earlier, number)
        if place < 0:
            continue
        try:
            return (yield from read_back(earlier, place))
        except Fenced:
            terms = yield Names(TERMS)
            if terms and number_of(terms[-1]) >= number + won:
                raise
            raise CorruptData(
                f"{journal_folder(earlier)} in the shared store lacks decisions of the job; restore it from a copy"
            ) from None
    return Inherited()


def brought() -> Procedure[tuple[Inherited, Sighting] | None]:
    """Seal the journal of a job that no supervisor leads, so that the job can be resumed; None if it has not begun.

    Returns: the job's decisions, and the sighting that must still be current when the resuming supervisor stands for
    election.
    """
    seen = yield from looked(None)
    if seen is None:
        return None
    decided = yield from inherited(seen.term.number + 1, won=False)
    sealed = yield from looked(None)
    return decided, sealed or seen


def _sealed(term: int, by: int) -> Procedure[int]:
    """Seal a journal and return the place of its last entry before the seal; -1 if it has none.

    A seal counts only if a listing that is requested afterwards shows it as the last entry.  The leader may have
    removed entries since an earlier listing; a seal based on that listing may be at a past place, where it prevents
    nothing.
    """
    entries = yield Names(journal_folder(term))
    place = number_of(entries[-1]) if entries else 0
    while True:
        name = entry_name(term, place)
        new = yield Create(name, Entry(sealed_by=by).data(name))
        data = None if new else (yield Read(name))
        sealed = new or (data is not None and Entry.read(name, data).sealed_by > 0)
        entries = yield Names(journal_folder(term))
        if sealed and entries and entries[-1] == name:
            return place - 1
        last = number_of(entries[-1]) if entries else place
        place = last + 1 if last == place else last


def read_back(term: int, last: int) -> Procedure[Inherited]:
    """Read a journal up to the place `last`, starting at the newest whole entry.

    Raises:
        Fenced: the entries have been removed, because a later term contains all of them.
    """
    entries: list[Entry] = []
    for place in range(last, -1, -1):
        name = entry_name(term, place)
        data = yield Read(name)
        if data is None:
            raise Fenced(f"{name} was removed because a later term leads the job")
        entries.append(Entry.read(name, data))
        if entries[-1].whole:
            break
    records = tuple(record for entry in reversed(entries) for record in entry.records)
    return Inherited(records, term, last, entries[-1].job, entries[-1].graph, entries[0].closing)


def decided() -> Procedure[Inherited]:
    """Read the decisions of the newest term that has any, without stopping its leader, which may meanwhile add more.

    Raises:
        Fenced: the leader has removed an entry that had to be read.
    """
    terms = yield Names(TERMS)
    for term in range(number_of(terms[-1]) if terms else 0, 0, -1):
        entries = yield Names(journal_folder(term))
        data = (yield Read(entries[-1])) if entries else None
        if data is None:
            continue
        place = number_of(entries[-1])
        last = place - 1 if Entry.read(entries[-1], data).sealed_by else place
        if last >= 0:
            return (yield from read_back(term, last))
    return Inherited()


def appended(term: int, place: int, data: bytes) -> Procedure[None]:
    """Create the next entry of the leader's own journal.

    If an entry with the same content exists, an earlier attempt created it, but the answer to that attempt was lost.

    Raises:
        Fenced: a later term has sealed the journal.
    """
    name = entry_name(term, place)
    if (yield Create(name, data)):
        return
    present = yield from _existing(name)
    if present != data:
        raise Fenced(f"term {term} has ended: term {Entry.read(name, present).sealed_by} leads the job")


def _existing(name: str) -> Procedure[bytes]:
    """Read an object that must exist, because objects of its kind are never removed."""
    data = yield Read(name)
    if data is None:
        raise CorruptData(f"{name} is missing in the shared store; restore it from a copy")
    return bytes(data)
