"""A table of values by (key, slot), each checkpointed by itself, with an index by when they are due.

A slot is a window's start, a joined record's time and number, the place of a record that is held.  Only the table is
state: when pairs are due, and which slots a key has, is derived from it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any

from operators.records.keys import ordered
from operators.state.keyed_tables import KeyedTable

Pair = tuple[Any, Any]
"""A pair (key, slot)."""
_SLACK = 64


def inspected(values: Mapping[Pair, Any], key: Any) -> Any:
    """Returns [slot, value] of each slot of the key, ascending; None when there is none."""
    entries = [[slot, value] for (other, slot), value in values.items() if other == key]
    return sorted(entries, key=itemgetter(0)) or None


class PairTable(KeyedTable):
    """A table by (key, slot), in the key group of the key."""

    __slots__ = ()

    def __init__(self, name: str, operator: str, key_groups: int) -> None:
        super().__init__(name, operator, key_groups, group_of=itemgetter(0))

    def inspect(self, key: Any) -> Any:
        """Returns [slot, value] of each slot of the key, ascending."""
        return inspected(self.values, key)


class SlotTable(PairTable):
    """A table by (key, slot) that notes when it was loaded.

    Attributes:
        loaded: whether something was loaded or cleared since the owner has looked.
    """

    __slots__ = ("loaded",)

    def __init__(self, name: str, operator: str, key_groups: int) -> None:
        super().__init__(name, operator, key_groups)
        self.loaded = False

    def load(self, fragment: bytes) -> None:
        super().load(fragment)
        self.loaded = True

    def clear(self) -> None:
        super().clear()
        self.loaded = True


class Slots:
    """A `SlotTable` and what is derived from it.

    Attributes:
        table: what is checkpointed.
        values: (key, slot) -> value; changed by the owner of the slots, which calls `touch` before and `added` behind.
    """

    def __init__(
        self, name: str, operator: str, key_groups: int, due_ns: Callable[[Any], int], by_key: bool = False
    ) -> None:
        """
        Args:
            due_ns: when a slot is due; of the slot alone.
            by_key: whether `of` is asked.
        """
        self.table = SlotTable(name, operator, key_groups)
        self.values: dict[Pair, Any] = self.table.values
        self._due_ns = due_ns
        self._by_key = by_key
        self._buckets: dict[int, dict[Pair, None]] = {}
        self._heap: list[int] = []
        """The times that have a bucket, and some that had one."""
        self._overdue: list[int] = []
        """The times that `due` has taken from the heap, ascending."""
        self._slots: dict[Any, list[Any]] = {}

    def touch(self, pairs: Collection[Pair]) -> None:
        """Note that these pairs are about to change, also in place."""
        self._settle()
        self.table.touch(pairs)

    def added(self, pairs: Iterable[Pair]) -> None:
        """Note that these pairs have values now and had none before."""
        self._settle()
        for pair in pairs:
            self._index(pair)

    def due(self, mark_ns: int) -> list[Pair]:
        """The pairs that are due at `mark_ns` or before, by (when, key order, slot); they stay until dropped."""
        self._settle()
        heap, buckets, reached = self._heap, self._buckets, list(self._overdue)
        while heap and heap[0] <= mark_ns:
            reached.append(heappop(heap))
        self._overdue = sorted({at_ns for at_ns in reached if at_ns in buckets})
        due_pairs: list[Pair] = []
        for at_ns in self._overdue:
            if at_ns <= mark_ns:
                due_pairs += _in_order(buckets[at_ns])
        return due_pairs

    def drop(self, pairs: Iterable[Pair]) -> None:
        """Remove the values of these pairs."""
        self._settle()
        listed = list(pairs)
        self.table.touch(listed)
        for pair in listed:
            del self.values[pair]
            at_ns = self._due_ns(pair[1])
            bucket = self._buckets[at_ns]
            del bucket[pair]
            if not bucket:
                del self._buckets[at_ns]
        if self._by_key:
            self._unlist(listed)
        if len(self._heap) > 2 * len(self._buckets) + _SLACK:
            self._rebuild_heap()

    def _unlist(self, pairs: Iterable[Pair]) -> None:
        """Remove slots from the lists by key, all of a key at once: mostly its oldest, and a hot key has many."""
        gone: dict[Any, list[Any]] = {}
        for key, slot in pairs:
            gone.setdefault(key, []).append(slot)
        for key, dropped in gone.items():
            slots = self._slots[key]
            dropped.sort()
            if slots[: len(dropped)] == dropped:
                del slots[: len(dropped)]
            else:
                for slot in dropped:
                    del slots[bisect_left(slots, slot)]
            if not slots:
                del self._slots[key]

    def of(self, key: Any) -> list[Any]:
        """The slots of a key, ascending; not to be changed."""
        self._settle()
        return self._slots.get(key, [])

    def next_ns(self) -> int | None:
        """The time at which the earliest slot is due."""
        self._settle()
        overdue = [at_ns for at_ns in self._overdue if at_ns in self._buckets]
        while self._heap and self._heap[0] not in self._buckets:
            heappop(self._heap)
        return min([*overdue[:1], *self._heap[:1]], default=None)

    def _index(self, pair: Pair) -> None:
        at_ns = self._due_ns(pair[1])
        bucket = self._buckets.get(at_ns)
        if bucket is None:
            bucket = self._buckets[at_ns] = {}
            heappush(self._heap, at_ns)
        bucket[pair] = None
        if self._by_key:
            insort(self._slots.setdefault(pair[0], []), pair[1])

    def _settle(self) -> None:
        """Derive everything again, once something was loaded."""
        if self.table.loaded:
            self.table.loaded = False
            self._buckets, self._heap, self._overdue, self._slots = {}, [], [], {}
            for pair in self.values:
                self._index(pair)

    def _rebuild_heap(self) -> None:
        taken = frozenset(self._overdue)
        self._heap = [at_ns for at_ns in self._buckets if at_ns not in taken]
        heapify(self._heap)


def _in_order(bucket: dict[Pair, None]) -> list[Pair]:
    """The pairs by key order, then by slot."""
    if len(bucket) == 1:
        return list(bucket)
    rank = {key: place for place, key in enumerate(ordered(dict.fromkeys(map(itemgetter(0), bucket))))}
    return sorted(bucket, key=lambda pair: (rank[pair[0]], pair[1]))
