"""The index of windows by due time: a window is due at its end, and again when its lateness is over.

Each item is a pair (key, slot) with one due time, which can change: a session's due time changes whenever it grows. An
item whose due time is postponed keeps its place in the index until the earlier time is reached, and is moved then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from operators.state.due_index import DueIndex, Pair, in_order


class Wakes:
    """An index of items by due time."""

    def __init__(self) -> None:
        self._at: dict[Pair, int] = {}
        self._index = DueIndex()
        """Lists each item at or before its due time, and possibly also at earlier times or after its removal."""

    def set(self, pair: Pair, at_ns: int) -> None:
        """Make an item due at `at_ns`, instead of its previous time if it has one."""
        known = self._at.get(pair)
        self._at[pair] = at_ns
        if known is None or at_ns < known:
            self._index.add(pair, at_ns)

    def add(self, pairs: Collection[Pair], at_ns: int) -> None:
        """Make items that have no due time due at `at_ns`."""
        self._at.update(dict.fromkeys(pairs, at_ns))
        self._index.add_all(pairs, at_ns)

    def forget(self, pairs: Iterable[Pair]) -> None:
        """Remove items."""
        for pair in pairs:
            self._at.pop(pair, None)

    def due(self, until_ns: int) -> list[Pair]:
        """Remove and return the items that are due by `until_ns`, in the order (time, key order, slot)."""
        at, due = self._at, list[Pair]()
        for at_ns, bucket in self._index.pop_times(until_ns):
            here = [pair for pair in bucket if at.get(pair) == at_ns]
            if len(here) < len(bucket):
                self._move(bucket, at_ns)
            due += in_order(here) if here else ()
            for pair in here:
                del at[pair]
        return due

    def _move(self, pairs: Iterable[Pair], at_ns: int) -> None:
        """Move those items whose due times are later to these times."""
        for pair in pairs:
            later_ns = self._at.get(pair, at_ns)
            if later_ns > at_ns:
                self._index.add(pair, later_ns)

    def next_ns(self) -> int | None:
        """Return the time at which the earliest item is due, or None if there are no items."""
        while (one := self._index.pop_one()) is not None:
            at_ns, pair = one
            now_ns = self._at.get(pair, at_ns - 1)
            if now_ns >= at_ns:
                self._index.add(pair, now_ns)
            if now_ns == at_ns:
                return at_ns
        return None

    def clear(self) -> None:
        """Remove all items."""
        self._at, self._index = {}, DueIndex()
