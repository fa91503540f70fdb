"""A table of values by (key, slot), each of which is checkpointed separately, with an index by due time.

A slot is the start of a window, the time and number of a joined record, or the place of a record that is held back.
Only the table is state; the due times of pairs and the slots of a key are derived from the table.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import itemgetter
from typing import Any

from operators.state.due_index import DueIndex, Pair
from operators.state.keyed_tables import KeyedTable
from operators.state.slot_index import SlotIndex


def inspected(values: Mapping[Pair, Any], key: Any, slot_index: SlotIndex | None = None) -> Any:
    """Return [slot, value] for each slot of the key, in ascending order, or None if the key has no slots."""
    if slot_index is not None:
        return [[slot, values[key, slot]] for slot in slot_index.of(key)] or None
    entries = [[slot, value] for (other, slot), value in values.items() if other == key]
    return sorted(entries, key=itemgetter(0)) or None


class PairTable(KeyedTable):
    """A table by (key, slot), in which the key determines the key group."""

    __slots__ = ()

    def __init__(self, name: str, operator: str, key_groups: int) -> None:
        super().__init__(name, operator, key_groups, group_of=itemgetter(0))

    def inspect(self, key: Any) -> Any:
        """Return [slot, value] for each slot of the key, in ascending order, or None if the key has no slots."""
        return inspected(self.values, key, self.slot_index)


class SlotTable(PairTable):
    """A table by (key, slot) that records whether it has been loaded.

    Attributes:
        loaded: whether the table has been loaded or cleared since its owner last reset this flag.
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
    """A `SlotTable` and the indexes that are derived from it.

    Attributes:
        table: the checkpointed table.
        values: (key, slot) -> value; the owner calls `touch` before it changes a value, and `added` after it adds one.
    """

    def __init__(
        self, name: str, operator: str, key_groups: int, due_ns: Callable[[Any], int], by_key: bool = False
    ) -> None:
        """
        Args:
            due_ns: returns the due time of a slot, which depends only on the slot.
            by_key: whether the method `of` is used.
        """
        self.table = SlotTable(name, operator, key_groups)
        self.values: dict[Pair, Any] = self.table.values
        self._due_ns = due_ns
        self._by_key = by_key
        self._index = DueIndex()
        self._slots: dict[Any, list[Any]] = {}

    def touch(self, pairs: Collection[Pair]) -> None:
        """Record that the values of these pairs are about to change, possibly in place."""
        self._settle()
        self.table.touch(pairs)

    def added(self, pairs: Iterable[Pair]) -> None:
        """Record that these pairs now have values, which they did not have before."""
        self._settle()
        for pair in pairs:
            self._add_to_index(pair)

    def add(self, fresh: dict[Pair, Any]) -> None:
        """Add values for pairs that have none."""
        if fresh:
            self.touch(fresh)
            self.values.update(fresh)
            self.added(fresh)

    def remove(self, pairs: Collection[Pair]) -> None:
        """Remove pairs that have values."""
        self.touch(pairs)
        for pair in pairs:
            del self.values[pair]
            self._index.remove(pair, self._due_ns(pair[1]))
        if self._by_key:
            self._unlist(pairs)

    def take(self, until_ns: int) -> list[tuple[Pair, Any]]:
        """Remove and return (pair, value) for the pairs due by `until_ns`, in the order (due time, key order, slot)."""
        self._settle()
        return self._taken(self._index.pop(until_ns))

    def take_first(self) -> list[tuple[Pair, Any]]:
        """Remove and return the entry that is due first, if there is one, in the same form as `take`."""
        at_ns = self.next_ns()
        if at_ns is None:
            return []
        first, *others = self._index.pop(at_ns)
        for pair in others:
            self._index.add(pair, at_ns)
        return self._taken([first])

    def _taken(self, pairs: list[Pair]) -> list[tuple[Pair, Any]]:
        self.table.touch(pairs)
        taken = [(pair, self.values.pop(pair)) for pair in pairs]
        if self._by_key:
            self._unlist(pairs)
        return taken

    def _unlist(self, pairs: Iterable[Pair]) -> None:
        """Remove slots from the lists by key, one key at a time; usually these are the key's oldest slots."""
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
        """Return the slots of a key in ascending order; the caller must not change the list."""
        self._settle()
        return self._slots.get(key, [])

    def next_ns(self) -> int | None:
        """Return the time at which the earliest slot is due, or None if there are no slots."""
        self._settle()
        return self._index.next_ns()

    def _add_to_index(self, pair: Pair) -> None:
        self._index.add(pair, self._due_ns(pair[1]))
        if self._by_key:
            insort(self._slots.setdefault(pair[0], []), pair[1])

    def _settle(self) -> None:
        """Derive the indexes again if the table was loaded or cleared."""
        if self.table.loaded:
            self.table.loaded = False
            self._index, self._slots = DueIndex(), {}
            for pair in self.values:
                self._add_to_index(pair)
