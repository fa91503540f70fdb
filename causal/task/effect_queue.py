"""Performs a task's effects in order; while a sink's store is unavailable, what must come after it waits.

The worker's shell and the simulated one share this object, so both keep the same order and report the end of a task
under the same condition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from causal.effects import Effect, OrphanReport, Phase, Reply, Send, StateReply

_AT_ONCE = frozenset((Send, Reply, Phase, StateReply, OrphanReport))
"""The effects performed although a store is unavailable: neighbours may be recovering, or wait for an answer."""
ENDS = frozenset(("staged", "finished"))
"""The phases, and states in heartbeats, that say that the store has taken every row."""


class EffectQueue:
    """Effects of one task that have not been performed yet.

    Args:
        perform: performs one effect; false if a store is unavailable and the effect has to be tried again.
    """

    def __init__(self, perform: Callable[[Effect], bool]) -> None:
        self._try = perform
        self._waiting: deque[Effect] = deque()
        self._ends_performed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Return whether effects wait for a store."""
        return bool(self._waiting)

    def perform(self, effects: Iterable[Effect]) -> None:
        """Perform `effects` after those that wait; an effect that a store prevents waits as well."""
        for effect in effects:
            if (self._waiting and not _at_once(effect)) or not self._try(effect):
                self._waiting.append(effect)
            elif isinstance(effect, Phase):
                self._ends_performed |= ENDS & {effect.name}

    def retry(self) -> None:
        """Retry the effects that wait, from the one that the store refused."""
        due, self._waiting = self._waiting, deque()
        self.perform(due)

    def reported_state(self, state: str, waiting_state: str) -> str:
        """Return the state that a heartbeat reports: an end only after the store has taken all rows.

        Args:
            state: the state that the task reports; it has requested the last write, which may wait here.
            waiting_state: the state to report instead, as long as the write waits.
        """
        return waiting_state if state in ENDS - self._ends_performed else state


def _at_once(effect: Effect) -> bool:
    """Return whether it is performed while effects wait: it does not say that the store has taken what waits."""
    return type(effect) in _AT_ONCE and not (isinstance(effect, Phase) and effect.name in ENDS)
