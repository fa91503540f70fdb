"""Virtual time: actions happen in order of their time, and in the order they were asked for where that is equal."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

MS = 1_000_000
SECOND = 1_000 * MS


class Clockwork:
    """The one clock of a simulation; nothing else makes anything happen."""

    def __init__(self) -> None:
        self.now_ns = SECOND
        self._queue: list[tuple[int, int, Callable[[], object]]] = []
        self._asked = 0

    def after(self, delay_ns: int, action: Callable[[], object]) -> None:
        """Schedule `action` in `delay_ns` from now, or immediately if that is not positive."""
        self.at(self.now_ns + delay_ns, action)

    def at(self, time_ns: int, action: Callable[[], object]) -> None:
        self._asked += 1
        heapq.heappush(self._queue, (max(time_ns, self.now_ns), self._asked, action))

    def step(self) -> bool:
        """Perform the next action; false if there is none."""
        if not self._queue:
            return False
        self.now_ns, _, action = heapq.heappop(self._queue)
        action()
        return True


class Live:
    """The source of live values: the host's wall clock, which may jump, and entropy."""

    def __init__(self, clock: Clockwork, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self.offset_ns = 1_700_000_000 * SECOND

    def wall_ns(self) -> int:
        return self._clock.now_ns + self.offset_ns

    def entropy(self) -> bytes:
        return self._rng.randbytes(16)
