"""The journal of one term, as its leader writes it.  Pure.

Every `WHOLE_EVERY` entries one of them holds all decisions that still matter, and those before it are removed: a
successor reads that many entries at most.  The last two entries of each earlier term stay forever, because a leader
that was suspended for long would otherwise find its next name free: that of the seal, or, where the answer to its last
creation was lost, that of the entry before it, which it creates again.
"""

from __future__ import annotations

from collections.abc import Sequence

from standby.leadership.term_journal import Inherited, Names, Procedure, Remove, appended
from standby.leadership.terms import JOURNAL, Entry, entry_name, journal_folder, necessary
from standby.supervision.effects import Record

WHOLE_EVERY = 100
"""The entries from one that holds all decisions to the next."""


LAST_KEPT = 2
"""The entries of an earlier term that are never removed: a leader that was suspended may still create one of them."""


class Ledger:
    """The decisions of a job, and where the next entry of this term goes.

    Args:
        inherited: the decisions of the terms before.
    """

    def __init__(self, term: int, inherited: Inherited) -> None:
        self.term = term
        self.inherited = inherited
        self.place = 0
        """The place of the next entry."""
        self.job, self.graph = inherited.job, inherited.graph
        self._records = list(inherited.records)

    @property
    def records(self) -> tuple[Record, ...]:
        """All decisions that still matter, oldest first."""
        return tuple(self._records)

    def replace(self, records: Sequence[Record], job: str, graph: str) -> None:
        """Begin the term with other decisions than those inherited: the job was changed while it was stopped.

        The first entry has all of it, so the change has happened as a whole or not at all.
        """
        self._records, self.job, self.graph = list(records), job, graph

    def append(self, records: Sequence[Record], at_ns: int, closing: str = "") -> Procedure[tuple[str, ...]]:
        """Create the next entry; when this returns the decisions are those of the job.

        It may be repeated, with the same arguments, after a failure that leaves open whether it is created.

        Returns: the entries that are unnecessary from now on.

        Raises:
            Fenced: a later term leads the job; these decisions are not the job's.
        """
        after = necessary([*self._records, *records])
        whole = self.place % WHOLE_EVERY == 0
        entry = Entry(tuple(records), at_ns, closing=closing)
        if whole:
            entry = Entry(tuple(after), at_ns, True, closing=closing, job=self.job, graph=self.graph)
        name = entry_name(self.term, self.place)
        yield from appended(self.term, self.place, entry.data(name))
        first, self.place, self._records = self.place - WHOLE_EVERY, self.place + 1, after
        if not whole or first < 0:
            return ()
        return tuple(entry_name(self.term, place) for place in range(first, first + WHOLE_EVERY))

    def sweep(self) -> Procedure[None]:
        """Remove the entries of earlier terms but the last two of each; this term's first entry has all of them."""
        by_term: dict[str, list[str]] = {}
        for name in (yield Names(JOURNAL)):
            by_term.setdefault(name.rpartition("/")[0], []).append(name)
        own = journal_folder(self.term)
        yield Remove(tuple(name for folder, names in by_term.items() if folder < own for name in names[:-LAST_KEPT]))
