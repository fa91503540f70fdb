"""The procedures of supervisors with terms and journals in the shared store, request by request.  Pure.

Each procedure is a generator: it yields a request to the store and is sent its answer, so that a simulator can put
anything between two requests.  A request that fails ends the procedure with the exception; every procedure may be
repeated from its beginning, whatever it had done before.
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
    """The names below a folder, sorted."""

    folder: str


@dataclass(frozen=True, slots=True)
class Read:
    """The content of an object; None if there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object; the answer is whether it is new."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove objects; one that stays costs only space."""

    names: tuple[str, ...]


Request = Names | Read | Create | Remove
Result = TypeVar("Result")
Procedure = Generator[Request, Any, Result]


UNBEGUN_MAX = 5
"""The most terms without a leader that a candidate counts."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """The newest term and its journal's last entry, as a candidate sees them.

    Attributes:
        place: the place of the last entry; -1 before there is one.
        entry: None if there is none.
        unbegun: the terms just before this one whose supervisors were elected and have led nothing, as far as is known
            when the term is new; `UNBEGUN_MAX` at most.
    """

    term: Term
    place: int = -1
    entry: Entry | None = None
    unbegun: int = 0


@dataclass(frozen=True, slots=True)
class Inherited:
    """The decisions of a sealed term, and where they ended; term 0 for a job that has just begun.

    Attributes:
        job, graph: the settings and the graph that the decisions are about; empty with term 0.
        closing: why its leader wrote no more; empty if that was lost.
    """

    records: tuple[Record, ...] = ()
    term: int = 0
    place: int = -1
    job: str = ""
    graph: str = ""
    closing: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether no supervisor has ended the processes of the job: they may work on."""
        return self.term > 0 and self.closing not in (ENDED, STOPPED)


def looked(known: Sighting | None) -> Procedure[Sighting | None]:
    """Look for the newest term, and return None before there is one.

    Args:
        known: what was seen the last time: objects never change, so they are not read again.
    """
    if known is not None:
        seen = yield from _journal_of(known.term, known)
        if seen.place != known.place and seen.entry is not None and not seen.entry.sealed_by:
            return seen  # its leader lives, so there is no need to look for a newer term
    terms = yield Names(TERMS)
    if not terms:
        return None
    if known is not None and known.term.number == number_of(terms[-1]):
        return known if seen.place == known.place else seen
    term = Term.read(terms[-1], (yield from _existing(terms[-1])))
    newest = yield from _journal_of(term, None)
    return replace(newest, unbegun=(yield from _unbegun(term.number))) if newest.place <= 0 else newest


def _unbegun(number: int) -> Procedure[int]:
    """Count the terms just before that one of whose journals there is at most the seal of another supervisor."""
    for count, earlier in enumerate(range(number - 1, max(0, number - 1 - UNBEGUN_MAX), -1)):
        entries = yield Names(journal_folder(earlier))
        if entries and number_of(entries[-1]) > 0:
            return count
    return min(number - 1, UNBEGUN_MAX)


def _journal_of(term: Term, known: Sighting | None) -> Procedure[Sighting]:
    """Look at the last entry of a term's journal."""
    entries = yield Names(journal_folder(term.number))
    if not entries:
        return Sighting(term)
    place = number_of(entries[-1])
    if known is not None and known.place == place:
        return known
    data = yield Read(entries[-1])  # None if its leader has removed it meanwhile: there are newer ones
    return Sighting(term, place, None if data is None else Entry.read(entries[-1], data))


def elected(term: Term) -> Procedure[bool]:
    """Stands for election and returns whether the term is this supervisor's.

    A creation whose answer was lost is found by its content.
    """
    name, data = term_name(term.number), term.data()
    if (yield Create(name, data)):
        return True
    return bool((yield from _existing(name)) == data)


def inherited(number: int, won: bool = True) -> Procedure[Inherited]:
    """Seal the journals before a term that was won, from the newest, and return the decisions that they hold.

    The newest journal with an entry has all decisions: its leader began it with those before.

    Args:
        won: otherwise that term does not exist yet, and may become another supervisor's.

    Raises:
        Fenced: a supervisor with a higher term has removed what was to be read.
        CorruptData: it was removed, and not by a supervisor.
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
    """Seal the journal of a job that no supervisor leads, so that it can be resumed; None if it has not begun.

    Returns: its decisions, and what the one that resumes it must still see when it stands for election.
    """
    seen = yield from looked(None)
    if seen is None:
        return None
    decided = yield from inherited(seen.term.number + 1, won=False)
    sealed = yield from looked(None)
    return decided, sealed or seen


def _sealed(term: int, by: int) -> Procedure[int]:
    """Seal a journal and return the place of its last entry before the seal; -1 if it has none.

    A seal counts only if a list requested afterwards shows it as the last entry: its leader may have removed entries of
    an earlier list, so that the seal took a place in the past, where it stops no entry.
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
    """Read a journal up to that place, from its newest whole entry on.

    Raises:
        Fenced: its entries have been removed, because a later term has all of them.
    """
    entries: list[Entry] = []
    for place in range(last, -1, -1):
        name = entry_name(term, place)
        data = yield Read(name)
        if data is None:
            raise Fenced(f"{name} is removed: a later term leads the job")
        entries.append(Entry.read(name, data))
        if entries[-1].whole:
            break
    records = tuple(record for entry in reversed(entries) for record in entry.records)
    return Inherited(records, term, last, entries[-1].job, entries[-1].graph, entries[0].closing)


def decided() -> Procedure[Inherited]:
    """Read the decisions of the newest term that has any, and stop no leader: there may be more at the same time.

    Raises:
        Fenced: its leader has removed what was to be read.
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

    An entry that is there already with this content was created by an attempt before, whose answer was lost.

    Raises:
        Fenced: a later term has sealed the journal.
    """
    name = entry_name(term, place)
    if (yield Create(name, data)):
        return
    present = yield from _existing(name)
    if present != data:
        raise Fenced(f"term {term} is over: term {Entry.read(name, present).sealed_by} leads the job")


def _existing(name: str) -> Procedure[bytes]:
    """Read an object that exists: these are never removed."""
    data = yield Read(name)
    if data is None:
        raise CorruptData(f"{name} is missing in the shared store; restore it from a copy")
    return bytes(data)
