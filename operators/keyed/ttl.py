"""Time to live: which places of a table were last written so long ago that they are gone.

By event time (`EventExpiry`) that is decided where a place is read: by the time of the record that reads it and the
latest time of a record that wrote it.  Watermarks only remove what no record that may still come could see.

By the wall clock (`ClockExpiry`) a place is gone once a timer has removed it: nothing looks at the clock when a place
is read or written, so it lives for the time to live and up to an eighth longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, Protocol

from causal.errors import PipelineError

_TICKS = 8
_ABSENT: Any = object()

Age = int | None
"""What a snapshot holds of a place: by event time when it was written, by the wall clock in which generation."""


class Expiry(Protocol):
    """The ages of all places of one table."""

    def wrote(self, place: Any) -> None:
        """The place is written now."""
        ...

    def written_in(self, place: Any, age: Age) -> None:
        """The place is as old as `age` said before: a later write was taken back."""
        ...

    def removed(self, place: Any) -> None:
        """The place is gone, for whatever reason."""
        ...

    def age(self, place: Any) -> Age:
        """What a snapshot must hold of a place."""
        ...

    def load(self, place: Any, age: Age) -> None:
        """The place is as old as a snapshot says."""
        ...

    def __contains__(self, place: Any) -> bool:
        """Whether the place is there."""
        ...

    def unload(self, place: Any) -> None:
        """The place was gone, as a snapshot says whose header has been loaded."""
        ...

    def advance(self, now_ns: int) -> list[Any]:
        """The clock shows `now_ns`: the places that are to be removed.  They stay until `removed`."""
        ...

    def forget(self) -> None:
        """No place is left, and what is restored begins anew."""
        ...

    def header(self) -> list[Any]:
        """What a snapshot must hold beside the ages of the places."""
        ...

    def load_header(self, told: Sequence[Any]) -> None:
        """Take over what `header` gave, perhaps of another time to live or by another clock."""
        ...


class EventExpiry:
    """Ages by event time.

    A place that records wrote of which the latest has time w is gone for a record with time t if t >= w + ttl.  What
    has no event time, such as a timer of the wall clock, reads and writes at the watermark.
    """

    word = "event"

    def __init__(self, ttl_ns: int, now: Callable[[], int | None]) -> None:
        """
        Args:
            now: the event time of what is worked on: that of the record or timer, otherwise the watermark; None
                before the first watermark.
        """
        self.ttl_ns = ttl_ns
        self.tick_ns = -(-ttl_ns // _TICKS)
        """Places are looked through for removal by ticks; results do not depend on it."""
        self.written: dict[Any, Age] = {}
        """By place the latest time at which it was written; None: before any time was known, so at `first_ns`."""
        self.first_ns: int | None = None
        """The first watermark."""
        self._now = now
        self._buckets: dict[int, dict[Any, None]] = {}
        self._ticks: list[int] = []
        self._undated: dict[Any, None] = {}
        self._foreign = False

    def gone(self, place: Any) -> bool:
        """Whether the place, which is there, is too old for what is worked on."""
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
        found: list[Any] = []
        while self._ticks and (self._ticks[0] + 1) * self.tick_ns <= oldest_ns + 1:
            tick = heappop(self._ticks)
            for place in self._buckets.pop(tick):
                at_ns = self.written.get(place)
                if at_ns is not None and at_ns // self.tick_ns == tick:
                    found.append(place)
        if self._undated and self.first_ns <= oldest_ns:
            found += [place for place in self._undated if self.written.get(place, _ABSENT) is None]
            self._undated.clear()
        return found

    def gone_by(self, now_ns: int) -> list[Any]:
        """All places that are too old at `now_ns`, to the nanosecond; looks at every place."""
        oldest_ns = now_ns - self.ttl_ns
        first_ns = now_ns if self.first_ns is None else self.first_ns
        return [place for place, at_ns in self.written.items() if (first_ns if at_ns is None else at_ns) <= oldest_ns]

    def forget(self) -> None:
        self.written.clear()
        self._buckets.clear()
        self._ticks.clear()
        self._undated.clear()

    def header(self) -> list[Any]:
        return [self.word, self.first_ns]

    def load_header(self, told: Sequence[Any]) -> None:
        self._foreign = told[0] != self.word
        self.first_ns = None if self._foreign else told[1]


class ClockExpiry:
    """Ages by the wall clock.

    What is written between two timers is one generation.  It counts as written when the second of them fires, which
    is known by then, and is removed by the first timer that fires a time to live later: never too early, however late
    timers fire.

    Attributes:
        current_ns: when the generation that is written began, which is its name; None while nothing is held.
    """

    word = "processing"

    def __init__(self, ttl_ns: int, now: Callable[[], int]) -> None:
        """
        Args:
            now: the wall clock, a determinant like any other: asked when something is written while nothing is held.
        """
        self.ttl_ns = ttl_ns
        self.tick_ns = -(-ttl_ns // _TICKS)
        self.current_ns: int | None = None
        self.places: dict[Any, Age] = {}
        """By place its generation; None for one that was restored without an age."""
        self._now = now
        self._closed: dict[Age, int] = {}
        """By generation when the timer fired that ended it; those that go on are not there."""
        self._generations: dict[Age, dict[Any, None]] = {}
        self._foreign = False

    def wrote(self, place: Any) -> None:
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
        # What time is known the header of that snapshot has said.
        self.places.pop(place, None)

    def next_ns(self) -> int | None:
        """When the next timer is due; None while nothing is held."""
        if not self.places:
            return None
        return 0 if self.current_ns is None else self.current_ns + self.tick_ns

    def advance(self, now_ns: int) -> list[Any]:
        if not self.places:
            self._nothing_held()
            return []
        if self.current_ns is not None and now_ns < self.current_ns + self.tick_ns:
            return []
        self.current_ns = now_ns
        found: list[Any] = []
        for generation in list(self._generations):
            if self._closed.setdefault(generation, now_ns) + self.ttl_ns <= now_ns:
                places = self._generations.pop(generation)
                del self._closed[generation]
                found += [place for place in places if self.places.get(place, _ABSENT) == generation]
        self._closed = {age: at_ns for age, at_ns in self._closed.items() if age in self._generations}
        return found

    def forget(self) -> None:
        self.places.clear()
        self._generations.clear()

    def header(self) -> list[Any]:
        closed = [[age, at_ns] for age, at_ns in self._closed.items() if age in self._generations]
        return [self.word, self.current_ns, sorted(closed, key=lambda pair: pair[1])]

    def load_header(self, told: Sequence[Any]) -> None:
        self._foreign = told[0] != self.word
        self.current_ns = None if self._foreign else told[1]
        self._closed = {} if self._foreign else dict(told[2])


def merged(headers: Sequence[Sequence[Any]]) -> list[Any]:
    """One header out of those of several tasks.

    Raises:
        PipelineError: they count by different clocks.
    """
    words = list(dict.fromkeys(header[0] for header in headers))
    if len(words) > 1:
        raise PipelineError(f"times to live of one state are counted by the clocks {', '.join(map(str, words))}")
    known = [header[1] for header in headers if header[1] is not None]
    first_ns = min(known, default=None)
    if words[0] == EventExpiry.word:
        return [words[0], first_ns]
    closed: dict[Age, int] = {}
    for header in headers:
        for age, at_ns in header[2]:
            closed[age] = max(at_ns, closed.get(age, at_ns))
    closed.pop(first_ns, None)  # what is written next belongs to it
    return [words[0], first_ns, sorted(([age, at_ns] for age, at_ns in closed.items()), key=lambda pair: pair[1])]
