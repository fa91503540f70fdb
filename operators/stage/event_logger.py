"""The logger of an operator, which is silent in a replay even if the operator has stored it in an attribute."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import get_ident
from weakref import WeakMethod

from causal.errors import invariant
from operators.capture.active import RUNNING


class EventLogger(logging.Logger):
    """A logger that passes new messages on to the logger `operators.NAME` if that logger accepts them.

    Args:
        replays: a method that returns whether the current event is a replay; it returns False between events.
    """

    def __init__(self, operator: str, replays: Callable[[], bool]) -> None:
        super().__init__(f"operators.{operator}")
        self.parent = logging.getLogger(self.name)
        self._replays = WeakMethod(replays)  # a strong reference would form a cycle that keeps replaced state in memory

    def isEnabledFor(self, level: int) -> bool:
        """Return whether a message is passed on; replay is not considered on other threads of user code."""
        invariant(self.parent is not None, "it passes messages on", logger=self.name)
        if not self.parent.isEnabledFor(level):  # type: ignore[union-attr]
            return False
        active = RUNNING.active
        if active is not None and active.thread != get_ident():
            return True
        replays = self._replays()
        return replays is not None and not replays()
