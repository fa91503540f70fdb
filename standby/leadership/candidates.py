"""Candidates as objects of the shared store: how each shows that it is waiting, and which ones are alive.  Pure.

A candidate has one numbered mark, which it replaces with the next one every `RENEW_NS`.  No clock of another machine is
read.  If a mark has not changed for `EXPIRY_NS` of the leader's own time, its candidate counts as dead, and the leader
removes the mark.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from causal.errors import PeerViolation
from causal.records.values import decode, encode
from standby.leadership.term_journal import Create, Names, Procedure, Read, Remove
from standby.leadership.terms import CANDIDATES, number_of

RENEW_NS = 10_000_000_000
EXPIRY_NS = 35_000_000_000
"""Longer than it takes to write three marks, because a store may be slow or briefly unavailable."""

FRESH_NS = 15_000_000_000
"""Longer than the time between two marks.  For this long after a mark stated that its candidate hears hosts, the
candidate counts as hearing them."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A supervisor that is waiting to lead.

    Attributes:
        name: the name of the supervisor's key; empty if keys are not used.
        listen: the address at which agents join the supervisor once it leads.
        hears: whether the supervisor hears hosts at that address.
    """

    name: str
    listen: str
    hears: bool = False


class Presence:
    """The mark of one candidate, which all its successive processes share.

    Args:
        holder: the mark of the candidate's directory.
    """

    def __init__(self, holder: str) -> None:
        self._folder = f"{CANDIDATES}/{holder}"
        self._number: int | None = None

    def renew(self, candidate: Candidate) -> Procedure[None]:
        """Create the next mark, and then remove the earlier ones."""
        before = yield Names(self._folder)
        self._number = 1 + max([number_of(name) for name in before], default=self._number or 0)
        yield Create(f"{self._folder}/{self._number:010d}", encode(asdict(candidate)))
        if before:
            yield Remove(tuple(before))

    def withdraw(self) -> Procedure[None]:
        """Remove the mark, because the candidate now leads or is ending."""
        yield Remove(tuple((yield Names(self._folder))))


@dataclass(slots=True)
class _Seen:
    """The last mark of a candidate, and when that mark was first seen."""

    name: str
    since_ns: int
    candidate: Candidate


class Candidates:
    """The candidates that a leader sees.

    Args:
        own: the leader's own mark, which does not count as a candidate.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self._seen: dict[str, _Seen] = {}

    def look(self, now_ns: int) -> Procedure[None]:
        """Read the marks of candidates, and remove those that are damaged or belong to dead candidates."""
        newest = {name.split("/")[1]: name for name in (yield Names(CANDIDATES))}
        present: dict[str, _Seen] = {}
        superfluous: list[str] = []
        for holder, name in newest.items():
            seen = self._seen.get(holder)
            if holder == self._own:
                continue
            if seen is None or seen.name != name:
                data = yield Read(name)
                candidate = None if data is None else _read(data)
                seen = None if candidate is None else _Seen(name, now_ns, candidate)
            if seen is not None:
                # Keep a dead candidate until its mark has been removed, because it would look new if the mark were read
                # again.
                present[holder] = seen
            if seen is None or not _lives(seen, now_ns):
                superfluous.append(name)
        self._seen = present
        if superfluous:
            yield Remove(tuple(superfluous))

    def waiting(self, now_ns: int) -> list[tuple[Candidate, int]]:
        """Return the living candidates, sorted by name, with the age of each one's mark in ns."""
        living = [(seen.candidate, now_ns - seen.since_ns) for seen in self._seen.values() if _lives(seen, now_ns)]
        return sorted(living, key=lambda each: (each[0].name, each[0].listen))

    def hearing(self, now_ns: int) -> Candidate | None:
        """Return a candidate that hears hosts; None if there is none."""
        return next((each for each, age_ns in self.waiting(now_ns) if each.hears and age_ns < FRESH_NS), None)


def _lives(seen: _Seen, now_ns: int) -> bool:
    return now_ns - seen.since_ns < EXPIRY_NS


def _read(data: bytes) -> Candidate | None:
    """Parse the candidate in a mark; return None if the mark is damaged."""
    try:
        return Candidate(**decode(data))
    except (PeerViolation, ValueError, TypeError):
        return None
