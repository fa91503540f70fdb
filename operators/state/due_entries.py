"""Values by (key, slot) that never change, and that are removed together when event time has passed them.

An entry is a tuple in a list or on a heap. Entries are not looked up by key, so a batch of entries is added without a
loop, and entries that are removed before the next batch are never put on the heap. Entries that a snapshot has not yet
encoded are encoded before they are removed, because user code may change their values afterwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Final

from operators.records.keys import ordered
from operators.state.due_index import Pair
from operators.state.keyed_tables import ABSENT, KEYS_AT_ONCE, TableJob
from operators.state.pending_keys import ListedKeys
from operators.state.slots import PairTable, inspected

Slot = tuple[int, ...]
"""The time of an entry in ns, followed by items that distinguish it from other entries with the same key and time."""
Entry = tuple[int, int, Any, Slot, Any]
"""A tuple (time in ns, number, key, slot, value); numbers are unique, so that keys and values are never compared."""

_TIME: Final = 0
_NUMBER: Final = 1
_KEY: Final = 2
_SLOT: Final = 3
_VALUE: Final = 4

MERGED_SHARE = 16
"""The heap is sorted together with the recent entries if it is at most this many times as long."""

slot_of = itemgetter(_SLOT)


class DueEntries(PairTable):
    """The entries of all keys; snapshots contain them as values by (key, slot)."""

    __slots__ = ("_heap", "_recent", "_next", "_fresh", "_gone")

    def __init__(self, name: str, operator: str, key_groups: int) -> None:
        super().__init__(name, operator, key_groups)
        self._heap: list[Entry] = []
        self._recent: list[Entry] = []
        """The entries added since the last `take`."""
        self._next = 0
        self._fresh: dict[int, Entry] = {}
        """The entries that no snapshot contains, by number."""
        self._gone: list[Pair] = []
        """The pairs that the last snapshot contains and that have been taken since."""

    def add(self, keys: Sequence[Any], slots: Sequence[Slot], values: Sequence[Any]) -> None:
        """Add entries whose pairs of key and slot are all new.

        Args:
            keys, slots, values: the key, slot and value of each entry.
        """
        self._settle()
        numbers = range(self._next, self._next + len(slots))
        self._next += len(slots)
        entries = list(zip(map(itemgetter(0), slots), numbers, keys, slots, values, strict=True))
        self._recent += entries
        self._fresh.update(zip(numbers, entries, strict=True))

    def take(self, until_ns: int) -> list[Entry]:
        """Remove and return the entries whose time is at most `until_ns`, in any order."""
        self._settle()
        heap, recent, self._recent = self._heap, self._recent, []
        if len(heap) < len(recent) * MERGED_SHARE:
            heap += recent
            heap.sort()  # a sorted list is a heap
            over = bisect_left(heap, (until_ns + 1,))
            due, self._heap = heap[:over], heap[over:]
        else:
            due = []
            for entry in recent:
                heappush(heap, entry)
            while heap and heap[0][_TIME] <= until_ns:
                due.append(heappop(heap))
        numbers = list(map(itemgetter(_NUMBER), due))
        if self._job is not None:
            self._job.before(numbers)
        fresh = list(map(self._fresh.pop, numbers, repeat(None)))
        if None in fresh:
            known = [(entry[_KEY], entry[_SLOT]) for entry, was_fresh in zip(due, fresh) if was_fresh is None]
            self._gone += known
        return due

    # Snapshots.

    def snapshot(self, full: bool) -> TableJob:
        """Freeze all entries, or only the entries added and the pairs removed since the last snapshot."""
        self._settle()
        while self._job is not None:
            self._job.step(KEYS_AT_ONCE)
        entries = {entry[_NUMBER]: entry for entry in (*self._heap, *self._recent)} if full else self._fresh
        gone = [] if full else self._gone
        self._fresh, self._gone = {}, []
        self._job = _DueJob(self, entries, gone, full)
        return self._job

    def load(self, fragment: bytes) -> None:
        for entry in (*self._heap, *self._recent):
            self.values[entry[_KEY:_VALUE]] = entry[_VALUE]
        self._heap, self._recent = [], []
        super().load(fragment)

    def _settle(self) -> None:
        """Put the loaded entries on the heap."""
        if not self.values:
            return
        numbers = range(self._next, self._next + len(self.values))
        self._next += len(self.values)
        self._heap = [
            (slot[0], number, key, slot, value)
            for number, ((key, slot), value) in zip(numbers, self.values.items(), strict=True)
        ]
        heapify(self._heap)
        self.values.clear()

    def clear(self) -> None:
        super().clear()
        self._heap, self._recent, self._fresh, self._gone = [], [], {}, []

    def inspect(self, key: Any) -> Any:
        """Return [slot, value] for each slot of the key, in ascending order, or None if the key has no slots."""
        if self.slot_index is not None:  # every entry is as it was loaded
            return inspected(self.values, key, self.slot_index)
        entries = {entry[_KEY:_VALUE]: entry[_VALUE] for entry in (*self._heap, *self._recent)}
        return inspected(entries | self.values, key)

    def kept_keys(self) -> Iterable[Any]:
        """Return the keys of all entries; a key may occur more than once."""
        return chain((entry[_KEY] for entry in (*self._heap, *self._recent)), super().kept_keys())


class _DueJob(TableJob):
    """A job that encodes removed pairs before added entries, because a removed pair may have been added again."""

    __slots__ = ("_entries", "_gone")

    def __init__(self, table: DueEntries, entries: dict[int, Entry], gone: list[Pair], full: bool) -> None:
        super().__init__(table, ListedKeys(set()), {}, full)
        self._entries = entries
        self._gone = gone

    def step(self, keys_max: int) -> int:
        went, self._gone = self._gone[:keys_max], self._gone[keys_max:]
        came = [self._entries.popitem()[1] for _ in range(min(keys_max - len(went), len(self._entries)))]
        self._encode_pairs(went, came)
        if not self._gone and not self._entries:
            self._table.done()
        return len(went) + len(came)

    def before(self, keys: Iterable[Any]) -> None:
        """Encode the pending entries with these numbers now."""
        due = [self._entries.pop(number) for number in keys if number in self._entries]
        if due:
            went, self._gone = self._gone, []
            self._encode_pairs(went, due)

    def _encode_pairs(self, went: list[Pair], came: list[Entry]) -> None:
        pairs = [*went, *(entry[_KEY:_VALUE] for entry in came)]
        self._encode(pairs, [*repeat(ABSENT, len(went)), *map(itemgetter(_VALUE), came)])


def in_key_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries sorted by time, key order and slot."""
    listed = list(entries)
    kinds = set(map(type, map(itemgetter(_KEY), listed)))
    if kinds <= {str} or kinds <= {int}:  # such keys are sorted by value
        listed.sort(key=itemgetter(_TIME, _KEY, _SLOT))
        return listed
    rank = {key: place for place, key in enumerate(ordered(dict.fromkeys(map(itemgetter(_KEY), listed))))}
    listed.sort(key=lambda entry: (entry[_TIME], rank[entry[_KEY]], entry[_SLOT]))
    return listed
