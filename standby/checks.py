"""What `causal run --check` waits for: every task performed again by a standby, at least one epoch of it."""

from __future__ import annotations

from standby.roster import Roster, Slot

FINISHED = (0, "")
"""(status, reason) of a job that came to its end by itself."""
WAIT_NS_MAX = 60_000_000_000
"""How long the end is held back for tasks of which no epoch has been performed again."""


class Checks:
    """Level-triggered: standbys say in every beat how much they have checked."""

    def __init__(self, roster: Roster, enabled: bool) -> None:
        self.enabled = enabled
        self._roster = roster
        self._told: dict[str, dict[str, int]] = {}
        self._finished_ns: int | None = None

    def told(self, slot: Slot, checked: tuple[int, str]) -> str:
        """A beat of a worker; returns what it found that was not the same, empty if nothing."""
        task = slot.task or slot.purpose
        if task and checked[0]:
            self._told.setdefault(task, {})[slot.name] = checked[0]
        return checked[1]

    def epochs(self, task: str) -> int:
        """How many epochs of the task have been performed again, by whichever standby."""
        return sum(self._told.get(task, {}).values())

    def lacking(self) -> list[str]:
        """Tasks of which nothing has been checked."""
        return [name for name in self._roster.seats if not self.epochs(name)] if self.enabled else []

    def finished(self, now_ns: int) -> tuple[int, str] | None:
        """All sinks have finished: (status, reason) of the end, or None while it must wait for a check."""
        lacking = self.lacking()
        if not lacking:
            return FINISHED
        if self._finished_ns is None:
            self._finished_ns = now_ns
        if now_ns - self._finished_ns < WAIT_NS_MAX:
            return None
        return (1, f"no epoch of {', '.join(lacking)} could be checked; their processes' logs say why")

    def deadline_ns(self) -> int | None:
        """When `finished` has something new to say by itself."""
        return None if self._finished_ns is None else self._finished_ns + WAIT_NS_MAX
