"""A supervisor's way to leadership and out of it: a state machine. Pure.

A candidate watches the journal of the newest term: its growth is the leader's sign of life, and no clock of another
machine is read. Only when it has not grown for `SILENCE_NS` of the candidate's own time does the candidate stand for
the next term. Time in which the candidate itself could not read it hardly counts: the leader could not write either. A
candidate that hears no host (`hearing`) waits twice as long: another one may hear some. A supervisor that was elected
may take longer than that to read the journal before it leads: each one that another has prevented from it doubles the
time, so that candidates of a slow store do not depose each other forever.
"""

from __future__ import annotations

from enum import Enum

from causal.errors import invariant
from standby.leadership.term_journal import Sighting
from standby.leadership.terms import DEAF, ENDED, RESIGNED, STOPPED
from standby.supervision.transitions import following

SILENCE_NS = 5_000_000_000
"""The time for which the leader's journal must stand still before a candidate stands for election."""

LOOK_NS = 1_000_000_000
"""The interval at which a candidate looks."""

BEAT_NS = 1_000_000_000
"""The interval at which a leader that decides nothing adds an empty entry to its journal."""

COUNTED_NS_MAX = 2_000_000_000
"""The most of the time between two looks that counts as silence: in the rest the store may have been unavailable."""


class Standing(Enum):
    """The part that a supervisor plays."""

    WATCHING = "watching"  # another one leads, or none yet
    ELECTING = "electing"  # it creates the next term
    SEALING = "sealing"  # it has won: it seals the journals before and begins its own
    LEADING = "leading"  # its decisions count
    DEPOSED = "deposed"  # a later term has sealed its journal: it decides nothing any more
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
    """One supervisor.

    Args:
        holder: its mark: it stands immediately after a term that was its own, because its process of that time has
            ended; not after one that it has left to another supervisor.
        founds: whether it begins the job where there is no term yet.
        resumes: (term, place) where the journal of a job stood that it is to resume, which counts as silent.
    """

    def __init__(self, holder: str, founds: bool = False, resumes: tuple[int, int] | None = None) -> None:
        self.standing = Standing.WATCHING
        self.term = 0
        """The term for which it stands, or which it has won."""
        self.seen: Sighting | None = None
        self.founds = founds
        self.offset_ns_min: int | None = None
        """The job's time is at least so far ahead of this machine's clock; None before an entry was seen."""
        self._holder = holder
        self._unbegun = False
        """Whether no supervisor has decided anything about the job yet."""
        self._resumes = resumes
        self._looked_ns: int | None = None
        self._silent_ns = 0

    def step(self, trigger: str) -> None:
        """Take the transition, which must be in the table."""
        self.standing = following(STANDING_TABLE, self.standing, trigger, self._holder)

    def unbegun(self) -> None:
        """Goes back to watching after an election in vain: no supervisor has begun the job.

        The one that founds it may be to begin with a savepoint, which only that one knows.
        """
        self._unbegun = True
        self.step("fence")

    def saw(self, sighting: Sighting | None, now_ns: int, hears: bool = True) -> None:
        """Process the result of a look, and decide on the next step.

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
        """Whether the job was stopped and waits to be resumed."""
        entry = self.seen.entry if self.seen is not None else None
        return entry is not None and entry.closing == STOPPED


def _place(sighting: Sighting | None) -> tuple[int, int] | None:
    return None if sighting is None else (sighting.term.number, sighting.place)


def _later(before: int | None, offset_ns: int) -> int:
    return offset_ns if before is None else max(before, offset_ns)
