"""The timers of one operator, by key and name; they are stored with the key and fire in the order (time, setting)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from causal.errors import PipelineError
from operators.records.keys import ordered
from operators.state.keyed_tables import KeyedTable

_SLACK = 64
CHAIN_PER_EVENT_MAX = 1000
"""The maximum number of timers that set one another for one time and fire in one event; others fire in the next."""

Timer = tuple[int, int, Any, str]
"""A timer as a tuple (time, number, key, name)."""


class TimerTable(KeyedTable):
    """A table key -> {name: [at_ns, number]}."""

    __slots__ = ()

    def renumber(self, next: Callable[[], int]) -> None:
        """Renumber timers in firing order; timers of different tasks with equal times and numbers are in key order."""
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

    Only the table is checkpointed; the heap is derived from it. The heap contains replaced timers until they reach the
    top, and it is rebuilt when more than half of its timers are replaced ones.
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
            sequence: returns the next number of the chain's counter, which orders timers by when they were set.
            refusal: the reason why this operator cannot have timers; empty if it can.
            chain_max: the maximum length of a chain of timers that set one another for the same time within one event;
                a timer for a time that has already passed then fires in the next event. None if the owner handles both
                cases.
        """
        self.table = table
        self._heap: list[tuple[int, int, Any, str]] = []
        self._live = 0
        self._sequence = sequence
        self._refusal = refusal
        self._stale = False
        self._setter: tuple[int, int] | None = None
        """The time up to which timers set by the firing timer are chained to it, and the length of its chain."""
        self._chains: dict[int, int] = {}
        """Timer number -> number of timers to which that timer is chained."""
        self._deferred: list[Timer] = []
        self._chain_max = chain_max

    def check(self) -> None:
        """Refuse timers that another version of the operator has set if this version cannot have any.

        Raises:
            PipelineError: there are such timers.
        """
        if self._refusal and any(self.table.values.values()):
            raise PipelineError(
                f"the savepoint has timers of operator {self.table.operator!r}, which cannot set timers now: "
                f"{self._refusal}; or give the operator a new name and pass --allow-dropped-state"
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
        """Restore a timer as it was before it was set again or cleared in this event."""
        names = self.table.values.setdefault(key, {})
        self._live += name not in names
        names[name] = [at_ns, sequence]
        heappush(self._heap, (at_ns, sequence, key, name))

    def clear(self, key: Any, name: str) -> bool:
        """Remove a timer, and return whether it existed."""
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
        """Return the time at which the earliest timer is due, or None if there are no timers."""
        self._settle()
        heap = self._heap
        while heap:
            at_ns, sequence, key, name = heap[0]
            if self.is_set(key, name, sequence):
                return at_ns
            heappop(heap)
        return None

    def pop(self, until_ns: int) -> Timer | None:
        """Remove and return the earliest timer that is due by `until_ns`, or None if no timer is due."""
        self._settle()
        while self._heap and self._heap[0][0] <= until_ns:
            entry = heappop(self._heap)
            if self.take(entry[2], entry[3], entry[1]):
                return entry
        return None

    def firing(self, timer: Timer, until_ns: int | None = None) -> int:
        """Begin to fire a timer, and return the number of timers to which it is chained.

        Timers that it sets before `fired` is called may be chained to it.

        Args:
            until_ns: the time up to which timers that it sets are chained to it; None for the timer's own time.
        """
        chain = self._chains.pop(timer[1], 0)
        self._setter = timer[0] if until_ns is None else until_ns, chain
        return chain

    def fired(self) -> None:
        """Record that the timer has fired."""
        self._setter = None

    def end(self) -> None:
        """End the event, which ends all chains and allows timers that were deferred to another event to fire."""
        self._chains.clear()
        for entry in self._deferred:
            heappush(self._heap, entry)
        self._deferred.clear()

    def due(self, due_ns: int) -> list[Timer]:
        """Return the due timers that have not been returned before, in firing order; they remain set until `take`."""
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
        """Remove a timer that `due` returned because it fires now; return False if it has been cleared or moved."""
        return self.is_set(key, name, sequence) and self.clear(key, name)

    def restored(self) -> None:
        """Record that the table was loaded, so that the heap is derived again before its next use."""
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
