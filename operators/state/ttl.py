"""Time to live: a place in a table expires when a given time has passed since its last write.

By event time (`EventExpiry`), each read decides whether a place has expired, by comparing the time of the reading
record with the latest time of a record that wrote the place. Watermarks only remove places that no future record could
read.

By the wall clock (`ClockExpiry`), a place expires when a timer removes it. The clock is not read when a place is read
or written, so a place may remain up to an eighth longer than its time to live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Protocol

from causal.errors import PipelineError

_TICKS = 8
_TICK = 3
"""The index of the time between two timers in a header of `ClockExpiry`."""
_ABSENT: Any = object()

Age = int | None
"""The age of a place in a snapshot: the time of its last write by event time, or its generation by the wall clock."""


class Expiry(Protocol):
    """The ages of all places in one table."""

    def wrote(self, place: Any) -> None:
        """Record that the current event writes the place."""
        ...

    def written_in(self, place: Any, age: Age) -> None:
        """Restore an earlier `age` of the place, because a later write was undone."""
        ...

    def removed(self, place: Any) -> None:
        """Record that the place was removed, for whatever reason."""
        ...

    def age(self, place: Any) -> Age:
        """Return the age of a place, for a snapshot."""
        ...

    def load(self, place: Any, age: Age) -> None:
        """Set the age of a place from a snapshot."""
        ...

    def __contains__(self, place: Any) -> bool:
        """Return whether the place has an age."""
        ...

    def unload(self, place: Any) -> None:
        """Remove a place that a snapshot lists as removed; the snapshot's header has already been loaded."""
        ...

    def advance(self, now_ns: int) -> list[Any]:
        """Advance the clock to `now_ns`, and return the expired places, which remain until `removed` is called."""
        ...

    def forget(self) -> None:
        """Remove all places before state is loaded."""
        ...

    def header(self) -> list[Any]:
        """Return the data that a snapshot contains in addition to the ages of the places."""
        ...

    def load_header(self, header: Sequence[Any]) -> None:
        """Restore the data that `header` returned, even if the time to live or the clock has changed since."""
        ...


class EventExpiry:
    """Ages by event time.

    A place whose latest write has time w is expired for a record with time t if t >= w + ttl. Events without an event
    time, such as wall-clock timers, use the watermark as their time.
    """

    clock = "event"

    def __init__(self, ttl_ns: int, now: Callable[[], int | None]) -> None:
        """
        Args:
            now: returns the event time of the current record or timer, otherwise the watermark; None before the first
                watermark.
        """
        self.ttl_ns = ttl_ns
        self.tick_ns = -(-ttl_ns // _TICKS)
        """The granularity of removal, which does not affect results."""
        self.written: dict[Any, Age] = {}
        """The time of each place's last write; None if the time was not known, which counts as `first_ns`."""
        self.first_ns: int | None = None
        """The first watermark."""
        self._now = now
        self._buckets: dict[int, dict[Any, None]] = {}
        self._ticks: list[int] = []
        self._undated: dict[Any, None] = {}
        self._foreign = False

    def gone(self, place: Any) -> bool:
        """Return whether an existing place has expired for the current event."""
        written_ns = self.written.get(place)
        if written_ns is None:
            written_ns = self.first_ns
        now_ns = self._now()
        return written_ns is not None and now_ns is not None and now_ns - written_ns >= self.ttl_ns

    def wrote(self, place: Any) -> None:
        now_ns = self._now()
        known = self.written.get(place, _ABSENT)
        if known is _ABSENT or (now_ns is not None and (known is None or now_ns > known)):
            self._put(place, now_ns)

    def _put(self, place: Any, at_ns: Age) -> None:
        self.written[place] = at_ns
        if at_ns is None:
            self._undated[place] = None
            return
        tick = at_ns // self.tick_ns
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
        bucket[place] = None

    def removed(self, place: Any) -> None:
        self.written.pop(place, None)

    unload = removed

    def __contains__(self, place: Any) -> bool:
        return place in self.written

    def written_in(self, place: Any, age: Age) -> None:
        self._put(place, age)

    def age(self, place: Any) -> Age:
        return self.written.get(place)

    def load(self, place: Any, age: Age) -> None:
        self._put(place, None if self._foreign else age)

    def advance(self, now_ns: int) -> list[Any]:
        if self.first_ns is None:
            self.first_ns = now_ns
        oldest_ns = now_ns - self.ttl_ns
        expired: list[Any] = []
        while self._ticks and (self._ticks[0] + 1) * self.tick_ns <= oldest_ns + 1:
            tick = heappop(self._ticks)
            for place in self._buckets.pop(tick):
                at_ns = self.written.get(place)
                if at_ns is not None and at_ns // self.tick_ns == tick:
                    expired.append(place)
        if self._undated and self.first_ns <= oldest_ns:
            expired += [place for place in self._undated if self.written.get(place, _ABSENT) is None]
            self._undated.clear()
        return expired

    def gone_by(self, now_ns: int) -> list[Any]:
        """Return all places that have expired at exactly `now_ns`; this examines every place."""
        oldest_ns = now_ns - self.ttl_ns
        first_ns = now_ns if self.first_ns is None else self.first_ns
        return [place for place, at_ns in self.written.items() if (first_ns if at_ns is None else at_ns) <= oldest_ns]

    def forget(self) -> None:
        self.written.clear()
        self._buckets.clear()
        self._ticks.clear()
        self._undated.clear()

    def header(self) -> list[Any]:
        return [self.clock, self.first_ns]

    def load_header(self, header: Sequence[Any]) -> None:
        self._foreign = header[0] != self.clock
        self.first_ns = None if self._foreign else header[1]


class ClockExpiry:
    """Ages by the wall clock.

    The places that are written between two timers form a generation. The generation counts as written when the second
    timer was due, even if that timer fires late (after a resume, for example), because due timers fire before the next
    event begins. The only exception is the last event before the timer, which may have continued beyond the due time;
    its writes count as written when the timer fires. The generation is removed by the first timer that is due at least
    one time to live later, so a place is never removed too early.

    Attributes:
        current_ns: the start of the current generation, which identifies it; None while there are no places.
    """

    clock = "processing"

    def __init__(self, ttl_ns: int, now: Callable[[], int]) -> None:
        """
        Args:
            now: reads the wall clock, and the reading is logged; called when a place is written and there are no other
                places.
        """
        self.ttl_ns = ttl_ns
        self.tick_ns = -(-ttl_ns // _TICKS)
        self.current_ns: int | None = None
        self.places: dict[Any, Age] = {}
        """The generation of each place; None for a place that was restored without an age."""
        self._now = now
        self._closed: dict[Age, int] = {}
        """The time at which each generation counts as written; the current generation has no entry."""
        self._generations: dict[Age, dict[Any, None]] = {}
        self._recent: dict[Any, None] = {}
        self._before: dict[Any, None] = {}
        """The places that the previous event wrote; `_recent` contains the places that the current event wrote."""
        self._foreign = False

    def begin(self) -> None:
        """Record that an event begins or the state is frozen; all writes before the last event were in time."""
        self._before, self._recent = self._recent, {}

    def wrote(self, place: Any) -> None:
        self._recent[place] = None
        if self.current_ns is None:
            self.current_ns = self._now()
        if self.places.get(place, _ABSENT) != self.current_ns:
            self._put(place, self.current_ns)

    def _put(self, place: Any, generation: Age) -> None:
        self.places[place] = generation
        self._generations.setdefault(generation, {})[place] = None

    def removed(self, place: Any) -> None:
        self.places.pop(place, None)
        if not self.places:
            self._nothing_held()

    def _nothing_held(self) -> None:
        self.current_ns = None
        self._generations.clear()
        self._closed.clear()

    def __contains__(self, place: Any) -> bool:
        return place in self.places

    def written_in(self, place: Any, age: Age) -> None:
        self._put(place, age)

    def age(self, place: Any) -> Age:
        return self.places.get(place)

    def load(self, place: Any, age: Age) -> None:
        self._put(place, None if self._foreign else age)

    def unload(self, place: Any) -> None:
        # The snapshot's header has already set the times, so only the place itself is removed.
        self.places.pop(place, None)

    def next_ns(self) -> int | None:
        """Return the time at which the next timer is due, or None if there are no places."""
        if not self.places:
            return None
        return 0 if self.current_ns is None else self.current_ns + self.tick_ns

    def advance(self, now_ns: int) -> list[Any]:
        if not self.places:
            self._nothing_held()
            return []
        due_ns = now_ns if self.current_ns is None else self.current_ns + self.tick_ns
        if now_ns < due_ns:
            return []
        if due_ns < now_ns:
            self._put_later(due_ns, now_ns)
        self.current_ns = now_ns
        expired: list[Any] = []
        for generation in list(self._generations):
            written_ns = now_ns if generation is None else min(now_ns, generation + self.tick_ns)
            if self._closed.setdefault(generation, written_ns) + self.ttl_ns <= now_ns:
                places = self._generations.pop(generation)
                del self._closed[generation]
                expired += [place for place in places if self.places.get(place, _ABSENT) == generation]
        self._closed = {age: at_ns for age, at_ns in self._closed.items() if age in self._generations}
        return expired

    def _put_later(self, generation: int, now_ns: int) -> None:
        """Move the places that the last two events wrote, possibly as late as `now_ns`, into a separate generation."""
        for place in (*self._before, *self._recent):
            if self.places.get(place, _ABSENT) == self.current_ns:
                self._put(place, generation)
                self._closed[generation] = now_ns

    def forget(self) -> None:
        self.places.clear()
        self._generations.clear()

    def header(self) -> list[Any]:
        # Generations without places are included, so that the header does not depend on which places are loaded.
        closed = sorted(map(list, self._closed.items()), key=itemgetter(1))
        return [self.clock, self.current_ns, closed, self.tick_ns]

    def load_header(self, header: Sequence[Any]) -> None:
        self._foreign = header[0] != self.clock
        self.current_ns = None if self._foreign else header[1]
        self._closed = {} if self._foreign else dict(header[2])
        tick_ns = self.tick_ns if self._foreign or len(header) <= _TICK else header[_TICK]
        if self.current_ns is not None and tick_ns > self.tick_ns:
            # Places may have been added until the old, longer tick ended.
            self._closed[self.current_ns] = self.current_ns + tick_ns


def merged(headers: Sequence[Sequence[Any]]) -> list[Any]:
    """Merge the headers of several tasks.

    Raises:
        PipelineError: the headers use different clocks.
    """
    clocks = list(dict.fromkeys(header[0] for header in headers))
    if len(clocks) > 1:
        raise PipelineError(f"one state has times to live by different clocks: {', '.join(map(str, clocks))}")
    known = [header[1] for header in headers if header[1] is not None]
    first_ns = min(known, default=None)
    if clocks[0] == EventExpiry.clock:
        return [clocks[0], first_ns]
    closed: dict[Age, int] = {}
    for header in headers:
        for age, at_ns in header[2]:
            closed[age] = max(at_ns, closed.get(age, at_ns))
    if first_ns in closed:  # the next write belongs to this generation
        closed[first_ns] = max(closed[first_ns], first_ns + headers[0][_TICK])
    times = [[age, closed[age]] for age in sorted(closed, key=closed.__getitem__)]
    return [clocks[0], first_ns, times, headers[0][_TICK]]
