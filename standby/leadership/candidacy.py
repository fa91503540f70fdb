"""A supervisor's way into leadership and out of it, as a state machine. Pure.

A candidate watches the journal of the newest term: the growth of that journal is the leader's sign of life, and no
clock of another machine is read. The candidate stands for the next term only if the journal has not grown for
`SILENCE_NS` of the candidate's own time. Time during which the candidate itself could not read the journal hardly
counts, because the leader could not write either. A candidate that hears no host (`hearing`) waits twice as long,
because another candidate may hear some. An elected supervisor may take longer than `SILENCE_NS` to read the journal
before it leads: each elected supervisor that another one prevented from leading doubles the silence, so that candidates
of a slow store do not depose each other forever.
"""

from __future__ import annotations

from enum import Enum

from causal.errors import invariant
from standby.leadership.term_journal import Sighting
from standby.leadership.terms import DEAF, ENDED, RESIGNED, STOPPED
from standby.supervision.transitions import following

SILENCE_NS = 5_000_000_000
"""The time for which the leader's journal must not grow before a candidate stands for election."""

LOOK_NS = 1_000_000_000
"""The interval between a candidate's looks at the journal."""

BEAT_NS = 1_000_000_000
"""The interval at which a leader that makes no decisions adds an empty entry to its journal."""

COUNTED_NS_MAX = 2_000_000_000
"""The most time between two looks that counts as silence: during the rest, the store may have been unavailable."""


class Standing(Enum):
    """The role that a supervisor has."""

    WATCHING = "watching"  # another supervisor leads, or none leads yet
    ELECTING = "electing"  # it is trying to create the next term
    SEALING = "sealing"  # it has won, and it seals the earlier journals before it begins its own
    LEADING = "leading"  # its decisions count
    DEPOSED = "deposed"  # a later term has sealed its journal, so it makes no more decisions
    OVER = "over"  # the job has ended


_S = Standing
STANDING_TABLE: dict[tuple[Standing, str], Standing] = {
    (_S.WATCHING, "stand"): _S.ELECTING,
    (_S.WATCHING, "end"): _S.OVER,
    (_S.ELECTING, "win"): _S.SEALING,
    (_S.ELECTING, "lose"): _S.WATCHING,
    (_S.SEALING, "begin"): _S.LEADING,
    (_S.SEALING, "fence"): _S.WATCHING,
    (_S.LEADING, "fence"): _S.DEPOSED,
    (_S.LEADING, "end"): _S.OVER,
}


class Candidacy:
    """The candidacy of one supervisor.

    Args:
        holder: the supervisor's mark.  If the newest term is its own, its earlier process has ended, and it stands for
            election immediately, unless it had left that term to another supervisor.
        founds: whether the supervisor begins the job if there is no term yet.
        resumes: the (term, place) at which the journal of a job to be resumed ends; a journal that still ends there
            counts as silent.
    """

    def __init__(self, holder: str, founds: bool = False, resumes: tuple[int, int] | None = None) -> None:
        self.standing = Standing.WATCHING
        self.term = 0
        """The term for which the supervisor stands, or the term that it has won."""
        self.seen: Sighting | None = None
        self.founds = founds
        self.offset_ns_min: int | None = None
        """The shortest time by which the job's time is ahead of this machine's clock; None until an entry has been
        seen."""
        self._holder = holder
        self._unbegun = False
        """Whether no supervisor has made any decision about the job yet."""
        self._resumes = resumes
        self._looked_ns: int | None = None
        self._silent_ns = 0

    def step(self, trigger: str) -> None:
        """Perform the transition for the trigger, which the table must contain."""
        self.standing = following(STANDING_TABLE, self.standing, trigger, self._holder)

    def unbegun(self) -> None:
        """Return to watching after an election that was in vain, because no supervisor has begun the job.

        The supervisor that founds the job may have to begin with a savepoint that only it knows.
        """
        self._unbegun = True
        self.step("fence")

    def saw(self, sighting: Sighting | None, now_ns: int, hears: bool = True) -> None:
        """Process the result of a look at the journal, and decide on the next step.

        Args:
            hears: whether this candidate hears hosts.
        """
        invariant(self.standing is Standing.WATCHING, "only a candidate watches", state=self.standing)
        if self._looked_ns is None or _place(sighting) != _place(self.seen):
            self._silent_ns = 0
        else:
            self._silent_ns += min(now_ns - self._looked_ns, COUNTED_NS_MAX)
        self._looked_ns, self.seen = now_ns, sighting
        if sighting is not None and sighting.entry is not None:
            self._unbegun = False
            self.offset_ns_min = _later(self.offset_ns_min, sighting.entry.at_ns - now_ns)
        if sighting is not None and sighting.entry is not None and sighting.entry.closing == ENDED:
            self.step("end")
        elif self._may_stand(sighting, hears):
            self.term = 1 if sighting is None else sighting.term.number + 1
            self.step("stand")

    def _may_stand(self, sighting: Sighting | None, hears: bool) -> bool:
        if sighting is None or self._unbegun:
            return self.founds
        if self._resumes == _place(sighting):
            return True
        closing = sighting.entry.closing if sighting.entry is not None else ""
        if closing == STOPPED:
            return False
        if self._silent_ns >= (SILENCE_NS if hears else 2 * SILENCE_NS) << sighting.unbegun:
            return True
        if closing in (RESIGNED, DEAF):
            return hears
        return sighting.term.holder == self._holder

    @property
    def stopped(self) -> bool:
        """Whether the job was stopped and may be resumed."""
        entry = self.seen.entry if self.seen is not None else None
        return entry is not None and entry.closing == STOPPED


def _place(sighting: Sighting | None) -> tuple[int, int] | None:
    return None if sighting is None else (sighting.term.number, sighting.place)


def _later(before: int | None, offset_ns: int) -> int:
    return offset_ns if before is None else max(before, offset_ns)
