"""The queue of a task's effects: while a sink's store is unavailable, the effects that must follow its write wait.

The worker's shell and the simulated shell share this class, so both keep the same order and report the end of a task
under the same condition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from causal.effects import Effect, OrphanReport, Phase, Reply, Send, StateReply

_AT_ONCE = frozenset((Send, Reply, Phase, StateReply, OrphanReport))
"""The effects performed even while a store is unavailable: neighbours may be recovering or waiting for an answer."""
ENDS = frozenset(("staged", "finished"))
"""The phases, and states in heartbeats, which report that the store has accepted every row."""


class EffectQueue:
    """The effects of one task that have not been performed yet.

    Args:
        perform: performs one effect; returns false if a store is unavailable and the effect has to be retried.
    """

    def __init__(self, perform: Callable[[Effect], bool]) -> None:
        self._try = perform
        self._waiting: deque[Effect] = deque()
        self._ends_performed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Return whether effects are waiting for a store."""
        return bool(self._waiting)

    def perform(self, effects: Iterable[Effect]) -> None:
        """Perform `effects` after the waiting effects; an effect that cannot be performed now is queued."""
        for effect in effects:
            if (self._waiting and not _at_once(effect)) or not self._try(effect):
                self._waiting.append(effect)
            elif isinstance(effect, Phase):
                self._ends_performed |= ENDS & {effect.name}

    def retry(self) -> None:
        """Retry the waiting effects, starting with the one that failed."""
        due, self._waiting = self._waiting, deque()
        self.perform(due)

    def reported_state(self, state: str, waiting_state: str) -> str:
        """Return the state for a heartbeat: an end is reported only after the store has accepted all rows.

        Args:
            state: the state that the task reports; the task has requested its last write, which may still be queued.
            waiting_state: the state to report instead while the last write is queued.
        """
        return waiting_state if state in ENDS - self._ends_performed else state


def _at_once(effect: Effect) -> bool:
    """Return whether `effect` may overtake waiting effects: it must not imply that the store has accepted all rows."""
    return type(effect) in _AT_ONCE and not (isinstance(effect, Phase) and effect.name in ENDS)
