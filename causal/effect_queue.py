"""Performs a task's effects in order; while a sink's store is unavailable, what must come after it waits.

The worker's shell and the simulated one share this object, so both keep the same order and report the end of a task
under the same condition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from causal.effects import Effect, Found, Inspected, Phase, Reply, Send

_AT_ONCE = frozenset((Send, Reply, Phase, Inspected, Found))
"""Performed although a store is unavailable: neighbours may be recovering, or wait for this task's answer."""
ENDS = frozenset(("staged", "finished"))
"""Phases, and words of beats, that say that the store has taken every row."""


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
        """Whether effects wait for a store."""
        return bool(self._waiting)

    def perform(self, effects: Iterable[Effect]) -> None:
        """Perform `effects` behind those that wait; what a store keeps from being performed waits as well."""
        for effect in effects:
            if (self._waiting and not _at_once(effect)) or not self._try(effect):
                self._waiting.append(effect)
            elif isinstance(effect, Phase):
                self._ends_performed |= ENDS & {effect.name}

    def retry(self) -> None:
        """Try again what waits, from the effect that the store refused."""
        due, self._waiting = self._waiting, deque()
        self.perform(due)

    def word(self, word: str, state: str) -> str:
        """What a beat calls the task's state: that it has ended only after its store has taken all rows.

        Args:
            word: what the task calls it; it has asked for the last write, which may wait here.
            state: what it is instead, as long as the write waits.
        """
        return state if word in ENDS - self._ends_performed else word


def _at_once(effect: Effect) -> bool:
    """Whether it is performed while effects wait: nothing in it says that the store has taken what waits."""
    return type(effect) in _AT_ONCE and not (isinstance(effect, Phase) and effect.name in ENDS)
