"""Timers of one operator: per key and name, persisted with the key, fired in the order (time, when set)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from operators.keys import ordered
from operators.state import Table

_SLACK = 64


class TimerTable(Table):
    """key -> {name: [at_ns, number]}."""

    __slots__ = ()

    def renumber(self, next: Callable[[], int]) -> None:
        """In the order in which they fire, those of one old number, set in different tasks, in key order."""
        rank = {key: place for place, key in enumerate(ordered(self.values))}
        told = [
            (at_ns, number, rank[key], name, names[name])
            for key, names in self.values.items()
            for name, (at_ns, number) in names.items()
        ]
        for *_, timer in sorted(told, key=lambda entry: entry[:4]):
            timer[1] = next()


class Timers:
    """All timers of one operator in one task.

    The table is what is checkpointed; the heap is derived from it, holds replaced timers until they
    surface, and is rebuilt when more than half of it is such.
    """

    __slots__ = ("table", "_heap", "_live", "_sequence", "_refusal", "_stale")

    def __init__(self, table: Table, sequence: Callable[[], int], refusal: str = "") -> None:
        """
        Args:
            table: key -> {name: [at_ns, sequence]}.
            sequence: gives the next number of the chain's one order of setting.
            refusal: why this operator can have no timers; empty when it can.
        """
        self.table = table
        self._heap: list[tuple[int, int, Any, str]] = []
        self._live = 0
        self._sequence = sequence
        self._refusal = refusal
        self._stale = False

    def set(self, key: Any, name: str, at_ns: int) -> None:
        if self._refusal:
            raise TypeError(self._refusal)
        self._settle()
        self.table.touch((key,))
        names = self.table.values.setdefault(key, {})
        self._live += name not in names
        sequence = self._sequence()
        names[name] = [at_ns, sequence]
        heappush(self._heap, (at_ns, sequence, key, name))
        if len(self._heap) > 2 * self._live + _SLACK:
            self._rebuild()

    def clear(self, key: Any, name: str) -> bool:
        """Forget a timer; whether there was one."""
        self._settle()
        names = self.table.values.get(key)
        if not names or name not in names:
            return False
        self.table.touch((key,))
        del names[name]
        if not names:
            del self.table.values[key]
        self._live -= 1
        return True

    def next_ns(self) -> int | None:
        """When the earliest is due."""
        self._settle()
        heap = self._heap
        while heap:
            at_ns, sequence, key, name = heap[0]
            if self.is_set(key, name, sequence):
                return at_ns
            heappop(heap)
        return None

    def due(self, due_ns: int) -> list[tuple[int, int, Any, str]]:
        """(time, sequence, key, name) of all that are due, in order.  They stay set until `take`."""
        self._settle()
        found = []
        while self._heap and self._heap[0][0] <= due_ns:
            entry = heappop(self._heap)
            if self.is_set(entry[2], entry[3], entry[1]):
                found.append(entry)
        return found

    def is_set(self, key: Any, name: str, sequence: int) -> bool:
        names = self.table.values.get(key)
        told = names.get(name) if names else None
        return told is not None and told[1] == sequence

    def take(self, key: Any, name: str, sequence: int) -> bool:
        """Remove one that `due` gave, because it fires now; false when it was cleared or moved since."""
        return self.is_set(key, name, sequence) and self.clear(key, name)

    def restored(self) -> None:
        """The table was loaded: derive the heap again when it is next needed."""
        self._stale = True

    def _settle(self) -> None:
        if self._stale:
            self._stale = False
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [
            (at_ns, sequence, key, name)
            for key, names in self.table.values.items()
            for name, (at_ns, sequence) in names.items()
        ]
        heapify(self._heap)
        self._live = len(self._heap)
