"""The timers of one operator: per key and name, persisted with the key, fired in the order (time, when set)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from causal.errors import PipelineError
from operators.records.keys import ordered
from operators.state.keyed_tables import KeyedTable

_SLACK = 64
CHAIN_PER_EVENT_MAX = 1000
"""The most timers that set one another for one time and fire in one event; the next one waits for another."""

Timer = tuple[int, int, Any, str]
"""A timer (time, number, key, name)."""


class TimerTable(KeyedTable):
    """A table key -> {name: [at_ns, number]}."""

    __slots__ = ()

    def renumber(self, next: Callable[[], int]) -> None:
        """Renumber timers in the order in which they fire; those of one old number, of different tasks, in key
        order.
        """
        rank = {key: place for place, key in enumerate(ordered(self.values))}
        entries = [
            (at_ns, number, rank[key], name, names[name])
            for key, names in self.values.items()
            for name, (at_ns, number) in names.items()
        ]
        for *_, timer in sorted(entries, key=lambda entry: entry[:4]):
            timer[1] = next()


class Timers:
    """The timers of one operator in one task.

    The table is what is checkpointed; the heap is derived from it, holds replaced timers until they
    surface, and is rebuilt when more than half of it is such.
    """

    __slots__ = (
        "table", "_heap", "_live", "_sequence", "_refusal", "_stale", "_setter", "_chains", "_deferred", "_chain_max",
    )  # fmt: skip

    def __init__(
        self, table: KeyedTable, sequence: Callable[[], int], refusal: str = "", chain_max: int | None = None
    ) -> None:
        """
        Args:
            table: key -> {name: [at_ns, sequence]}.
            sequence: gives the next number of the chain's one order of setting.
            refusal: why this operator can have no timers; empty when it can.
            chain_max: how long a chain of timers that set one another for one time may be in one event, where a timer
                for a time that has passed fires in the next one; None where the owner looks after all that.
        """
        self.table = table
        self._heap: list[tuple[int, int, Any, str]] = []
        self._live = 0
        self._sequence = sequence
        self._refusal = refusal
        self._stale = False
        self._setter: tuple[int, int] | None = None
        """The time up to which the timer that fires chains what it sets to itself, and the length of its chain."""
        self._chains: dict[int, int] = {}
        """The number of timers that a timer is chained to, by its number."""
        self._deferred: list[Timer] = []
        self._chain_max = chain_max

    def check(self) -> None:
        """Refuse the timers of another version of the operator, where this one can have none.

        Raises:
            PipelineError: there are such timers.
        """
        if self._refusal and any(self.table.values.values()):
            raise PipelineError(
                f"the savepoint holds timers of operator {self.table.operator!r}, which can have none now: "
                f"{self._refusal}; or give it a name of its own, with --allow-dropped-state"
            )

    def set(self, key: Any, name: str, at_ns: int) -> None:
        if self._refusal:
            raise TypeError(self._refusal)
        self._settle()
        self.table.touch((key,))
        names = self.table.values.setdefault(key, {})
        self._live += name not in names
        sequence = self._sequence()
        names[name] = [at_ns, sequence]
        if self._setter is not None and at_ns <= self._setter[0]:
            chain = self._chains[sequence] = self._setter[1] + 1
            if self._chain_max is not None and (chain > self._chain_max or at_ns < self._setter[0]):
                self._deferred.append((at_ns, sequence, key, name))
                return
        heappush(self._heap, (at_ns, sequence, key, name))
        if len(self._heap) > 2 * self._live + _SLACK:
            self._rebuild()

    def put_back(self, key: Any, name: str, at_ns: int, sequence: int) -> None:
        """Restore the timer as it was before it was set again or cleared, in this event."""
        names = self.table.values.setdefault(key, {})
        self._live += name not in names
        names[name] = [at_ns, sequence]
        heappush(self._heap, (at_ns, sequence, key, name))

    def clear(self, key: Any, name: str) -> bool:
        """Forget a timer; returns whether there was one."""
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
        """Return the time at which the earliest is due."""
        self._settle()
        heap = self._heap
        while heap:
            at_ns, sequence, key, name = heap[0]
            if self.is_set(key, name, sequence):
                return at_ns
            heappop(heap)
        return None

    def pop(self, until_ns: int) -> Timer | None:
        """Remove and return the earliest that is due at `until_ns`; None when none is."""
        self._settle()
        while self._heap and self._heap[0][0] <= until_ns:
            entry = heappop(self._heap)
            if self.take(entry[2], entry[3], entry[1]):
                return entry
        return None

    def firing(self, timer: Timer, until_ns: int | None = None) -> int:
        """Begin to fire a timer; returns how many others it is chained to.  What it sets until `fired` may be chained.

        Args:
            until_ns: up to which time it is; None: up to that of the timer.
        """
        chain = self._chains.pop(timer[1], 0)
        self._setter = timer[0] if until_ns is None else until_ns, chain
        return chain

    def fired(self) -> None:
        """Record that the timer has fired."""
        self._setter = None

    def end(self) -> None:
        """End the event: chains end, and what was left for another event may fire."""
        self._chains.clear()
        for entry in self._deferred:
            heappush(self._heap, entry)
        self._deferred.clear()

    def due(self, due_ns: int) -> list[Timer]:
        """Return the timers that are due and were not returned before, in order. They stay set until `take`."""
        self._settle()
        due_timers = []
        while self._heap and self._heap[0][0] <= due_ns:
            entry = heappop(self._heap)
            if self.is_set(entry[2], entry[3], entry[1]):
                due_timers.append(entry)
        return due_timers

    def is_set(self, key: Any, name: str, sequence: int) -> bool:
        names = self.table.values.get(key)
        stored = names.get(name) if names else None
        return stored is not None and stored[1] == sequence

    def take(self, key: Any, name: str, sequence: int) -> bool:
        """Remove one that `due` gave, because it fires now; false when it was cleared or moved since."""
        return self.is_set(key, name, sequence) and self.clear(key, name)

    def restored(self) -> None:
        """Record that the table was loaded: the heap is derived again when it is next needed."""
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
