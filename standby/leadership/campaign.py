"""A candidate's campaign until it leads or the job has ended: it looks, stands for election and seals earlier terms.

Pure: the campaign is a generator of pauses and requests to the store, so that time and the store can be simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from causal.errors import Fenced, Unavailable
from standby.leadership.candidacy import LOOK_NS, Candidacy, Standing
from standby.leadership.ledger import Ledger
from standby.leadership.term_journal import Request, Sighting, elected, inherited, looked
from standby.leadership.terms import Term


@dataclass(frozen=True, slots=True)
class Pause:
    """A request to wait for this long; the answer is the time on this machine's own clock after the wait."""

    span_ns: int


Campaign = Generator[Request | Pause, Any, Ledger | None]


def campaign(
    candidacy: Candidacy,
    describe: Callable[[int, Sighting | None], Term],
    report: Callable[[str], None],
    hears: Callable[[], bool] = lambda: True,
) -> Campaign:
    """Return the ledger of the term that was won, before its first entry; None once the job has ended.

    Args:
        describe: a function that returns the term with this number as this supervisor would lead it, given the newest
            term that was seen.
        report: a function that is called with the problem while the store is unavailable, and with "" when the store
            answers again.
        hears: a function that returns whether this supervisor hears hosts.
    """
    failed = False
    now_ns = yield Pause(0)
    while candidacy.standing is not Standing.OVER:
        try:
            if candidacy.standing is Standing.WATCHING:
                sighting = yield from looked(candidacy.seen)
                now_ns = yield Pause(0)
                candidacy.saw(sighting, now_ns, hears())
            elif candidacy.standing is Standing.ELECTING:
                won = yield from elected(describe(candidacy.term, candidacy.seen))
                candidacy.step("win" if won else "lose")
            else:
                ledger = Ledger(candidacy.term, (yield from inherited(candidacy.term)))
                if ledger.inherited.term or candidacy.founds:
                    candidacy.step("begin")
                    return ledger
                candidacy.unbegun()
            if failed:
                failed = False
                report("")
        except Unavailable as problem:
            failed = True
            report(str(problem))
            yield Pause(LOOK_NS)
        except Fenced:
            candidacy.step("fence")
        if candidacy.standing is Standing.WATCHING:
            yield Pause(LOOK_NS)
    return None
