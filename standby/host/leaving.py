"""A host that was asked to end and waits for its tasks to move to other hosts, for as long as that is likely.

Pure: times are passed in. The beats of the host's agent report that the host is leaving, so the supervisor drains it.
"""

from __future__ import annotations

from dataclasses import dataclass

UNHEARD_S = 3.0
"""The silence of the supervisor after which no task will move."""


@dataclass(slots=True)
class Leaving:
    """The wait of one host that is leaving.

    Attributes:
        since_s: when the host was asked to end.
        within_s: how long the host's tasks have to move.
    """

    since_s: float
    within_s: float
    known: bool = False
    """Whether the supervisor has answered a beat that reported that the host is leaving."""
    heard_s: float = 0.0

    def __post_init__(self) -> None:
        self.heard_s = self.since_s

    def heard(self, sent_s: float, now_s: float) -> None:
        """Process the answer to a beat sent at `sent_s`."""
        self.heard_s = now_s
        self.known = self.known or sent_s >= self.since_s

    def left(self, processes: int) -> bool:
        """Return whether no process of the job is left on this host and no further one will be started on it."""
        return self.known and not processes

    def in_vain(self, now_s: float) -> bool:
        """Return whether the host should end although tasks remain on it."""
        return now_s - self.since_s >= self.within_s or now_s - self.heard_s >= UNHEARD_S
