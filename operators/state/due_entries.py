"""Values by (key, slot) that are never changed, and are removed together when event time has passed them.

An entry is one tuple in a list or on a heap. Nothing is looked up by key, so a batch of entries is added without a
loop, and entries removed before the next batch never reach the heap. Entries that a snapshot has not encoded yet are
encoded before they are removed: user code may change them then.
"""

from __future__ import annotations

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
"""The time of an entry in ns, and what distinguishes it from others of its key and time."""
Entry = tuple[int, int, Any, Slot, Any]
"""(time in ns, number, key, slot, value); by the number, no two entries have their keys or values compared."""

_TIME: Final = 0
_NUMBER: Final = 1
_KEY: Final = 2
_SLOT: Final = 3
_VALUE: Final = 4

slot_of = itemgetter(_SLOT)


class DueEntries(PairTable):
    """The entries of all keys; in snapshots values by (key, slot)."""

    __slots__ = ("_heap", "_recent", "_next", "_fresh", "_gone")

    def __init__(self, name: str, operator: str, key_groups: int) -> None:
        super().__init__(name, operator, key_groups)
        self._heap: list[Entry] = []
        self._recent: list[Entry] = []
        """The entries that were added since some were last taken."""
        self._next = 0
        self._fresh: dict[int, Entry] = {}
        """The entries that no snapshot has, by number."""
        self._gone: list[Pair] = []
        """The pairs that the last snapshot has, and that have been taken since."""

    def add(self, keys: Sequence[Any], slots: Sequence[Slot], values: Sequence[Any]) -> None:
        """Add entries, of each of which the pair of key and slot is new.

        Args:
            keys, slots, values: of each entry.
        """
        self._settle()
        numbers = range(self._next, self._next + len(slots))
        self._next += len(slots)
        entries = list(zip(map(itemgetter(0), slots), numbers, keys, slots, values, strict=True))
        self._recent += entries
        self._fresh.update(zip(numbers, entries, strict=True))

    def take(self, until_ns: int) -> list[Entry]:
        """Remove and return the entries whose time is not above `until_ns`, in any order."""
        self._settle()
        heap, due = self._heap, list[Entry]()
        for entry in self._recent:
            if entry[_TIME] <= until_ns:
                due.append(entry)
            else:
                heappush(heap, entry)
        self._recent = []
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
        """Freeze the entries now: all of them, or those that came since the last snapshot and the pairs that went."""
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
        """Return [slot, value] of each slot of the key, ascending."""
        entries = {entry[_KEY:_VALUE]: entry[_VALUE] for entry in (*self._heap, *self._recent)}
        return inspected(entries | self.values, key)

    def kept_keys(self) -> Iterable[Any]:
        """Return the keys of all entries, each once or more often."""
        return chain((entry[_KEY] for entry in (*self._heap, *self._recent)), super().kept_keys())


class _DueJob(TableJob):
    """A job that encodes entries and the pairs that went, these first: a pair may have come again."""

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
        """Encode the entries of these numbers."""
        due = [self._entries.pop(number) for number in keys if number in self._entries]
        if due:
            went, self._gone = self._gone, []
            self._encode_pairs(went, due)

    def _encode_pairs(self, went: list[Pair], came: list[Entry]) -> None:
        pairs = [*went, *(entry[_KEY:_VALUE] for entry in came)]
        self._encode(pairs, [*repeat(ABSENT, len(went)), *map(itemgetter(_VALUE), came)])


def in_key_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries by time, key order and slot."""
    listed = list(entries)
    kinds = set(map(type, map(itemgetter(_KEY), listed)))
    if kinds <= {str} or kinds <= {int}:  # their key order is that of their values
        listed.sort(key=itemgetter(_TIME, _KEY, _SLOT))
        return listed
    rank = {key: place for place, key in enumerate(ordered(dict.fromkeys(map(itemgetter(_KEY), listed))))}
    listed.sort(key=lambda entry: (entry[_TIME], rank[entry[_KEY]], entry[_SLOT]))
    return listed
