"""The queue in which control-plane acts wait, in order, while a state is being loaded.

The worker and the simulated process share this class, so that both keep the same order.
"""

from __future__ import annotations

from collections import deque

from operators.runtime import membership
from operators.runtime.membership import Act, Load

_AT_ONCE = (membership.SendReport, membership.End)
"""Messages to the supervisor, and the order to end, do not need a state."""


class Backlog:
    """The acts that one process has not performed yet.

    Args:
        each: whether to keep every state that is to be loaded, instead of only the latest.
    """

    def __init__(self, each: bool = False) -> None:
        self._each = each
        self._waiting: deque[Act] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def takes(self, act: Act, loading: bool) -> bool:
        """Return whether `act` must wait and, if so, add it to the queue.

        Args:
            loading: whether a state is being loaded.
        """
        if isinstance(act, _AT_ONCE) or not (loading or self._waiting):
            return False
        last = self._waiting[-1] if self._waiting else None
        if isinstance(act, Load) and isinstance(last, Load) and act.task == last.task and not self._each:
            self._waiting.pop()
        self._waiting.append(act)
        return True

    def next(self) -> Act:
        """Remove and return the oldest act; call this only while no state is being loaded."""
        return self._waiting.popleft()
