"""Whether a supervisor hears the hosts of its job, and when a leader should leave the job to another. Pure.

A journal that grows shows that its leader reaches the store, but nothing about hosts. So each supervisor counts the
messages of hosts, as a leader and as a candidate alike, and a candidate shows in its mark whether it hears any. A
leader that hears none leaves only where a candidate hears some: while every host is dead, or no candidate could do
better, nothing changes.
"""

from __future__ import annotations

from standby.leadership.candidacy import COUNTED_NS_MAX

HEARS_NS = 2_000_000_000
"""The time after a message of any host for which a candidate counts as one that hears hosts."""

DEAF_NS_MIN = 5_000_000_000
"""The least silence of all hosts after which a leader leaves: in it, the marks of candidates that lost the same hosts
show that they hear none either."""


class Hearing:
    """The time for which one supervisor has heard no host.

    Time in which it did not check hardly counts: it may have been suspended.

    Args:
        leads: it has just begun to lead, so the silence begins now; a candidate hears no host before the first message.
    """

    def __init__(self, leads: bool) -> None:
        self._silent_ns = 0 if leads else HEARS_NS
        self._messages = 0
        self._looked_ns: int | None = None

    def look(self, messages: int, now_ns: int) -> None:
        """Record the number of messages of hosts so far, of whichever of them."""
        if messages != self._messages:
            self._silent_ns = 0
        elif self._looked_ns is not None:
            self._silent_ns += min(now_ns - self._looked_ns, COUNTED_NS_MAX)
        self._messages, self._looked_ns = messages, now_ns

    @property
    def hears(self) -> bool:
        """Whether it counts as one that hears hosts."""
        return self._silent_ns < HEARS_NS

    def leaves(self, timeout_ns: int, candidate_hears: bool) -> bool:
        """Return whether it leaves the job to another supervisor.

        Args:
            timeout_ns: the silence of one host that counts as its death.
            candidate_hears: whether a candidate waits that hears hosts.
        """
        return candidate_hears and self._silent_ns >= max(DEAF_NS_MIN, timeout_ns)
