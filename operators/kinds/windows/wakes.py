"""The index of which window is due when: at its end, then again when its lateness is over.

Each item is a (key, slot) and has one time, which may be moved: a session is moved whenever it grows.
"""

from __future__ import annotations

from collections.abc import Iterable

from operators.state.due_index import DueIndex, Pair


class Wakes:
    """Items by the time at which they are due."""

    def __init__(self) -> None:
        self._at: dict[Pair, int] = {}
        self._index = DueIndex()

    def set(self, pair: Pair, at_ns: int) -> None:
        """Makes an item due at a time, instead of the time that it had before."""
        known = self._at.get(pair)
        if known == at_ns:
            return
        if known is not None:
            self._index.remove(pair, known)
        self._at[pair] = at_ns
        self._index.add(pair, at_ns)

    def forget(self, pairs: Iterable[Pair]) -> None:
        """Removes items."""
        for pair in pairs:
            known = self._at.pop(pair, None)
            if known is not None:
                self._index.remove(pair, known)

    def due(self, until_ns: int) -> list[Pair]:
        """Removes and returns the items that are due by then, by (time, key order, slot)."""
        pairs = self._index.pop(until_ns)
        for pair in pairs:
            del self._at[pair]
        return pairs

    def next_ns(self) -> int | None:
        """Returns when the earliest item is due."""
        return self._index.next_ns()

    def clear(self) -> None:
        """Removes all items."""
        self._at, self._index = {}, DueIndex()
