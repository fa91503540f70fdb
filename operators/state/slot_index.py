"""The slots of each key in a table by (key, slot) that changes only when snapshots are loaded.

A process that answers questions about a checkpoint finds the slots of a key by it, instead of searching all pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from operators.state.due_index import Pair


class SlotIndex:
    """The slots by key.

    Args:
        pairs: the pairs of (key, slot) that the table contains.
    """

    __slots__ = ("_slots",)

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._slots: dict[Any, dict[Any, None]] = {}
        self.loaded(pairs, ())

    def loaded(self, pairs: Iterable[Pair], gone: Iterable[Pair]) -> None:
        """Record that a fragment with these pairs and removed pairs was loaded."""
        for key, slot in gone:
            slots = self._slots.get(key)
            if slots is not None:
                slots.pop(slot, None)
                if not slots:
                    del self._slots[key]
        for key, slot in pairs:
            self._slots.setdefault(key, {})[slot] = None

    def of(self, key: Any) -> list[Any]:
        """Return the slots of a key in ascending order."""
        return sorted(self._slots.get(key, ()))
