"""Whether a supervisor hears the hosts of its job, and when a leader should leave the job to another one. Pure.

A growing journal shows that its leader reaches the store, but shows nothing about hosts. Each supervisor therefore
counts the messages from hosts, both as a leader and as a candidate, and a candidate's mark states whether it hears any.
A leader that hears no host leaves only if a candidate hears some. If all hosts are dead, or if no candidate could do
better, nothing changes.
"""

from __future__ import annotations

from standby.leadership.candidacy import COUNTED_NS_MAX

HEARS_NS = 2_000_000_000
"""The time after a message from any host for which a candidate counts as one that hears hosts."""

DEAF_NS_MIN = 5_000_000_000
"""The shortest silence of all hosts after which a leader leaves.  Within this time, candidates that have lost the
same hosts report in their marks that they do not hear any either."""


class Hearing:
    """The time for which one supervisor has heard no host.

    Time during which the supervisor did not check hardly counts, because the supervisor may have been suspended.

    Args:
        leads: whether the supervisor has just begun to lead, so that silence begins now; a candidate hears no host
            until the first message.
    """

    def __init__(self, leads: bool) -> None:
        self._silent_ns = 0 if leads else HEARS_NS
        self._messages = 0
        self._looked_ns: int | None = None

    def look(self, messages: int, now_ns: int) -> None:
        """Record the total number of messages received from hosts so far."""
        if messages != self._messages:
            self._silent_ns = 0
        elif self._looked_ns is not None:
            self._silent_ns += min(now_ns - self._looked_ns, COUNTED_NS_MAX)
        self._messages, self._looked_ns = messages, now_ns

    @property
    def hears(self) -> bool:
        """Whether the supervisor counts as hearing hosts."""
        return self._silent_ns < HEARS_NS

    def leaves(self, timeout_ns: int, candidate_hears: bool) -> bool:
        """Return whether the leader should leave the job to another supervisor.

        Args:
            timeout_ns: the silence after which one host counts as dead.
            candidate_hears: whether a candidate that hears hosts is waiting.
        """
        return candidate_hears and self._silent_ns >= max(DEAF_NS_MIN, timeout_ns)
