"""Pairs (key, slot) by the time at which they are due; it can be derived from the state, so no snapshot holds it."""

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
    """Pairs, each with one time; `remove` and `pop` leave times in the heap that have no pairs any more."""

    __slots__ = ("_buckets", "_heap")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Pair, None]] = {}
        self._heap: list[int] = []
        """The times that have a bucket, and some that had one."""

    def add(self, pair: Pair, at_ns: int) -> None:
        """Add a pair that is not there."""
        bucket = self._buckets.get(at_ns)
        if bucket is None:
            bucket = self._buckets[at_ns] = {}
            heappush(self._heap, at_ns)
        bucket[pair] = None

    def remove(self, pair: Pair, at_ns: int) -> None:
        """Remove a pair with its time."""
        bucket = self._buckets[at_ns]
        del bucket[pair]
        if not bucket:
            del self._buckets[at_ns]
            if len(self._heap) > 2 * len(self._buckets) + _SLACK:
                self._heap = list(self._buckets)
                heapify(self._heap)

    def add_all(self, pairs: Iterable[Pair], at_ns: int) -> None:
        """Add pairs of one time."""
        bucket = self._buckets.get(at_ns)
        if bucket is None:
            bucket = self._buckets[at_ns] = {}
            heappush(self._heap, at_ns)
        bucket.update(dict.fromkeys(pairs))

    def pop(self, until_ns: int) -> list[Pair]:
        """Remove and return the pairs that are due by then, by (time, key order, slot)."""
        return [pair for _, bucket in self.pop_times(until_ns) for pair in in_order(bucket)]

    def pop_times(self, until_ns: int) -> Iterator[tuple[int, Collection[Pair]]]:
        """Remove and yield the times by then, ascending, each with its pairs; more may be added meanwhile."""
        while self._heap and self._heap[0] <= until_ns:
            at_ns = heappop(self._heap)
            bucket = self._buckets.pop(at_ns, None)
            if bucket is not None:
                yield at_ns, bucket

    def pop_one(self) -> tuple[int, Pair] | None:
        """Remove and return one pair of the earliest time, with that time; it may be put back immediately."""
        while (at_ns := self.next_ns()) is not None:
            bucket = self._buckets[at_ns]
            if bucket:
                return at_ns, bucket.popitem()[0]
            del self._buckets[at_ns]
        return None

    def next_ns(self) -> int | None:
        """Return when the earliest pair is due."""
        while self._heap and self._heap[0] not in self._buckets:
            heappop(self._heap)
        return self._heap[0] if self._heap else None


def in_order(bucket: Collection[Pair]) -> list[Pair]:
    """Return the pairs by key order, then by slot."""
    if len(bucket) == 1:
        return list(bucket)
    kinds = set(map(type, map(itemgetter(0), bucket)))
    if kinds == {str} or kinds == {int}:  # their key order is that of their values
        return sorted(bucket)
    rank = {key: place for place, key in enumerate(ordered(dict.fromkeys(map(itemgetter(0), bucket))))}
    return sorted(bucket, key=lambda pair: (rank[pair[0]], pair[1]))
