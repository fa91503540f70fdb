"""A host that is asked to end: it waits until its tasks are on other hosts, while that can be expected.

Pure: times are passed in. The beats of its agent report that it leaves, and the supervisor drains it.
"""

from __future__ import annotations

from dataclasses import dataclass

UNHEARD_S = 3.0
"""The silence of the supervisor after which no task will move."""


@dataclass(slots=True)
class Leaving:
    """The wait of one host.

    Attributes:
        since_s: the moment at which it was asked to end.
        within_s: the time that its tasks have.
    """

    since_s: float
    within_s: float
    known: bool = False
    """Whether the supervisor has answered a beat that said so."""
    heard_s: float = 0.0

    def __post_init__(self) -> None:
        self.heard_s = self.since_s

    def heard(self, sent_s: float, now_s: float) -> None:
        """Process the answer to a beat that was sent at that moment."""
        self.heard_s = now_s
        self.known = self.known or sent_s >= self.since_s

    def left(self, processes: int) -> bool:
        """Return whether nothing of the job is here any more, and nothing will arrive."""
        return self.known and not processes

    def in_vain(self, now_s: float) -> bool:
        """Return whether it ends all the same."""
        return now_s - self.since_s >= self.within_s or now_s - self.heard_s >= UNHEARD_S
