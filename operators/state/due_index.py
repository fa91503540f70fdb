"""An index of pairs (key, slot) by due time; it can be derived from the state, so snapshots do not contain it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any

from operators.records.keys import ordered

Pair = tuple[Any, Any]
"""A pair (key, slot)."""
_SLACK = 64


class DueIndex:
    """An index of pairs, each with one due time; the heap may keep times whose pairs have been removed."""

    __slots__ = ("_buckets", "_heap")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Pair, None]] = {}
        self._heap: list[int] = []
        """The times that have a bucket, and some times whose bucket was removed."""

    def add(self, pair: Pair, at_ns: int) -> None:
        """Add a pair that is not yet in the index."""
        bucket = self._buckets.get(at_ns)
        if bucket is None:
            bucket = self._buckets[at_ns] = {}
            heappush(self._heap, at_ns)
        bucket[pair] = None

    def remove(self, pair: Pair, at_ns: int) -> None:
        """Remove a pair whose due time is `at_ns`."""
        bucket = self._buckets[at_ns]
        del bucket[pair]
        if not bucket:
            del self._buckets[at_ns]
            if len(self._heap) > 2 * len(self._buckets) + _SLACK:
                self._heap = list(self._buckets)
                heapify(self._heap)

    def add_all(self, pairs: Iterable[Pair], at_ns: int) -> None:
        """Add pairs with the same due time."""
        bucket = self._buckets.get(at_ns)
        if bucket is None:
            bucket = self._buckets[at_ns] = {}
            heappush(self._heap, at_ns)
        bucket.update(dict.fromkeys(pairs))

    def pop(self, until_ns: int) -> list[Pair]:
        """Remove and return the pairs that are due by `until_ns`, in the order (time, key order, slot)."""
        return [pair for _, bucket in self.pop_times(until_ns) for pair in in_order(bucket)]

    def pop_times(self, until_ns: int) -> Iterator[tuple[int, Collection[Pair]]]:
        """Remove and yield the times up to `until_ns`, ascending, with their pairs; pairs may be added meanwhile."""
        while self._heap and self._heap[0] <= until_ns:
            at_ns = heappop(self._heap)
            bucket = self._buckets.pop(at_ns, None)
            if bucket is not None:
                yield at_ns, bucket

    def pop_one(self) -> tuple[int, Pair] | None:
        """Remove and return (time, pair) for a pair with the earliest time, or None if there are no pairs."""
        while (at_ns := self.next_ns()) is not None:
            bucket = self._buckets[at_ns]
            if bucket:
                return at_ns, bucket.popitem()[0]
            del self._buckets[at_ns]
        return None

    def next_ns(self) -> int | None:
        """Return the time at which the earliest pair is due, or None if there are no pairs."""
        while self._heap and self._heap[0] not in self._buckets:
            heappop(self._heap)
        return self._heap[0] if self._heap else None


def in_order(bucket: Collection[Pair]) -> list[Pair]:
    """Return the pairs sorted by key order, then by slot."""
    if len(bucket) == 1:
        return list(bucket)
    kinds = set(map(type, map(itemgetter(0), bucket)))
    if kinds == {str} or kinds == {int}:  # such keys are sorted by value
        return sorted(bucket)
    rank = {key: place for place, key in enumerate(ordered(dict.fromkeys(map(itemgetter(0), bucket))))}
    return sorted(bucket, key=lambda pair: (rank[pair[0]], pair[1]))
