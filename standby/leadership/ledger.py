"""The journal of one term, as written by its leader.  Pure.

Every `WHOLE_EVERY` entries, one entry contains all decisions that are still necessary, and the entries before it are
removed, so a successor reads at most that many entries.  The last two entries of each earlier term are never removed.
Otherwise, a leader that was suspended for a long time would find the name of its next entry free.  That is the name of
the seal or, if the answer to its last creation was lost, the name of the entry before the seal, which it then creates
again.
"""

from __future__ import annotations

from collections.abc import Sequence

from standby.leadership.term_journal import Inherited, Names, Procedure, Remove, appended
from standby.leadership.terms import JOURNAL, Entry, entry_name, journal_folder, necessary
from standby.supervision.effects import Record

WHOLE_EVERY = 100
"""One entry in this many contains all decisions."""


LAST_KEPT = 2
"""The number of entries of an earlier term that are never removed: a suspended leader may still create one of them."""


class Ledger:
    """The decisions of a job, and the place of this term's next entry.

    Args:
        inherited: the decisions of the earlier terms.
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
        """All decisions that are still necessary, oldest first."""
        return tuple(self._records)

    def replace(self, records: Sequence[Record], job: str, graph: str) -> None:
        """Begin the term with decisions other than the inherited ones, because the job was changed while it was
        stopped.

        The first entry contains the entire change, so that it is applied either as a whole or not at all.
        """
        self._records, self.job, self.graph = list(records), job, graph

    def append(self, records: Sequence[Record], at_ns: int, closing: str = "") -> Procedure[tuple[str, ...]]:
        """Create the next entry; when this procedure returns, its decisions are part of the job.

        If a failure leaves unknown whether the entry exists, the procedure may be repeated with the same arguments.

        Returns: the names of the entries that are no longer necessary.

        Raises:
            Fenced: a later term leads the job, so these decisions are not part of it.
        """
        after = necessary([*self._records, *records])
        entry = Entry(tuple(records), at_ns, closing=closing)
        if self.place % WHOLE_EVERY == 0:
            entry = Entry(tuple(after), at_ns, True, closing=closing, job=self.job, graph=self.graph)
        return (yield from self._create(entry, after))

    def change(self, records: Sequence[Record], job: str, graph: str, at_ns: int) -> Procedure[tuple[str, ...]]:
        """Create the next entry, with which the running job is another version; its decisions replace all others.

        It may be repeated, and returns and raises, as `append`.
        """
        superfluous = yield from self._create(Entry(tuple(records), at_ns, True, job=job, graph=graph), list(records))
        self.job, self.graph = job, graph
        return superfluous

    def _create(self, entry: Entry, after: list[Record]) -> Procedure[tuple[str, ...]]:
        """Create the next entry, after which the job has the decisions `after`."""
        name = entry_name(self.term, self.place)
        yield from appended(self.term, self.place, entry.data(name))
        first, self.place, self._records = self.place - WHOLE_EVERY, self.place + 1, after
        if first % WHOLE_EVERY or first < 0:
            return ()
        return tuple(entry_name(self.term, place) for place in range(first, first + WHOLE_EVERY))

    def sweep(self) -> Procedure[None]:
        """Remove all but the last two entries of each earlier term, because this term's first entry contains their
        decisions.
        """
        by_term: dict[str, list[str]] = {}
        for name in (yield Names(JOURNAL)):
            by_term.setdefault(name.rpartition("/")[0], []).append(name)
        own = journal_folder(self.term)
        yield Remove(tuple(name for folder, names in by_term.items() if folder < own for name in names[:-LAST_KEPT]))
