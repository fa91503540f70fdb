"""The index of what is due when; it can be derived from the state at any time, so no snapshot holds it.

Each item is a (key, slot) and has one time, which may be moved: a window is due at its end, then again when its
lateness is over; a session is moved whenever it grows.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from operator import itemgetter

from operators.records.keys import ordered
from operators.state.slots import Pair

_SLACK = 64


class Wakes:
    """Items by the time at which they are due."""

    def __init__(self) -> None:
        self._at: dict[Pair, int] = {}
        self._buckets: dict[int, dict[Pair, None]] = {}
        self._heap: list[int] = []
        """Each time that has a bucket, and some that had one."""

    def set(self, pair: Pair, at_ns: int) -> None:
        """Makes an item due at a time, instead of the time that it had before."""
        known = self._at.get(pair)
        if known == at_ns:
            return
        if known is not None:
            self._leave(pair, known)
        self._at[pair] = at_ns
        bucket = self._buckets.get(at_ns)
        if bucket is None:
            bucket = self._buckets[at_ns] = {}
            heappush(self._heap, at_ns)
        bucket[pair] = None

    def forget(self, pairs: Iterable[Pair]) -> None:
        """Removes items."""
        for pair in pairs:
            known = self._at.pop(pair, None)
            if known is not None:
                self._leave(pair, known)

    def due(self, until_ns: int) -> list[Pair]:
        """Removes and returns the items that are due by then, by (time, key order, slot)."""
        pairs: list[Pair] = []
        while self._heap and self._heap[0] <= until_ns:
            bucket = self._buckets.pop(heappop(self._heap), None)
            if bucket is not None:
                pairs += _in_order(bucket)
        for pair in pairs:
            del self._at[pair]
        return pairs

    def next_ns(self) -> int | None:
        """Returns when the earliest item is due."""
        while self._heap and self._heap[0] not in self._buckets:
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    def clear(self) -> None:
        """Removes all items."""
        self._at, self._buckets, self._heap = {}, {}, []

    def _leave(self, pair: Pair, at_ns: int) -> None:
        bucket = self._buckets[at_ns]
        del bucket[pair]
        if not bucket:
            del self._buckets[at_ns]
            if len(self._heap) > 2 * len(self._buckets) + _SLACK:
                self._heap = list(self._buckets)
                heapify(self._heap)


def _in_order(bucket: dict[Pair, None]) -> list[Pair]:
    """Returns the items by key order, then by slot."""
    if len(bucket) == 1:
        return list(bucket)
    rank = {key: place for place, key in enumerate(ordered(dict.fromkeys(map(itemgetter(0), bucket))))}
    return sorted(bucket, key=lambda pair: (rank[pair[0]], pair[1]))
