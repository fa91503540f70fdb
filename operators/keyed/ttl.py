"""Time to live: which places of a table were last written so long ago that they are gone.

Time is cut into ticks of an eighth of the time to live.  A place remembers the tick of its last write and is gone
when that tick is nine old: it lives for one to 9/8 of the time to live.  Nothing looks at a clock when a place is
read or written; the tick moves on by an event (a watermark, or one timer per tick), so a replay repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

_TICKS = 8
_ABSENT: Any = object()

Tick = int | None
"""Number of a tick; None for a write before the first watermark by a record without a time: it counts as one at it."""


class Expiry:
    """The ages of all places of one table.

    State: `current` is None until time is known, and again when nothing is left that could expire.
    """

    __slots__ = ("tick_ns", "current", "ticks", "_first", "_written", "_now", "_event_ns", "_loading_ns")

    def __init__(
        self,
        ttl_ns: int,
        now: Callable[[], int] | None = None,
        event_ns: Callable[[], int | None] | None = None,
    ) -> None:
        """
        Args:
            now: the wall clock, a determinant like any other: asked when something is written while no time is
                known.  None for event time.
            event_ns: the time of the record that is worked on, if it is known: what it writes is written then, should
                the watermark be behind.
        """
        self.tick_ns = -(-ttl_ns // _TICKS)
        self.current: Tick = None
        self.ticks: dict[Any, Tick] = {}
        self._first: Tick = None
        self._written: dict[Tick, dict[Any, None]] = {}
        self._now = now
        self._event_ns = event_ns
        self._loading_ns = self.tick_ns

    def wrote(self, place: Any) -> None:
        """The place is written now."""
        current = self.current
        if current is None and self._now is not None:
            current = self.current = self._now() // self.tick_ns
        elif self._event_ns is not None:
            event_ns = self._event_ns()
            if event_ns is not None:
                tick = event_ns // self.tick_ns
                current = tick if current is None else max(current, tick)
        if self.ticks.get(place, _ABSENT) != current:
            self._put(place, current)

    def load(self, place: Any, tick: Tick) -> None:
        """The place was last written in that tick, as the snapshot counts them."""
        self._put(place, self._converted(tick))

    def unload(self, place: Any) -> None:
        """The place was gone, as the snapshot says; whose header says what time is known, so that stays."""
        self.ticks.pop(place, None)

    def _put(self, place: Any, tick: Tick) -> None:
        self.ticks[place] = tick
        self._written.setdefault(tick, {})[place] = None

    def _converted(self, tick: Tick) -> Tick:
        return None if tick is None else tick * self._loading_ns // self.tick_ns

    def removed(self, place: Any) -> None:
        """The place is gone, for whatever reason."""
        self.ticks.pop(place, None)
        if not self.ticks:
            self._written.clear()
            if self._now is not None:
                self.current = None

    def next_ns(self) -> int | None:
        """When the next tick begins; None while nothing could expire."""
        return None if self.current is None or not self.ticks else (self.current + 1) * self.tick_ns

    def advance(self, now_ns: int) -> list[Any]:
        """It is so late: the places that have just become too old.  They stay until `removed`."""
        tick = now_ns // self.tick_ns
        if self.current is not None and tick <= self.current:
            return []
        if self._first is None:
            self._first = tick
        self.current = tick
        gone: list[Any] = []
        for old in list(self._written):
            born = self._first if old is None else old
            if born <= tick - _TICKS - 1:
                places = self._written.pop(old)
                gone += [place for place in places if self.ticks.get(place, _ABSENT) == old]
        return gone

    def forget(self) -> None:
        """No place is left: what is restored begins anew."""
        self.ticks.clear()
        self._written.clear()

    def header(self) -> list[Any]:
        """What a snapshot must hold beside the ticks of the places."""
        return [self.tick_ns, self.current, self._first]

    @staticmethod
    def merged(told: Sequence[Sequence[Any]]) -> list[Any]:
        """One header out of those of several tasks: time is where the furthest is."""
        currents = [current for _, current, _ in told if current is not None]
        firsts = [first for _, _, first in told if first is not None]
        return [told[0][0], max(currents, default=None), min(firsts, default=None)]

    def load_header(self, told: Iterable[Any]) -> None:
        """Take over what `header` gave, perhaps with another time to live."""
        self._loading_ns, current, first = told
        self.current, self._first = self._converted(current), self._converted(first)
