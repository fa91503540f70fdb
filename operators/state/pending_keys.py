"""The keys that a snapshot job has yet to encode: a table's keys at the barrier, except those already encoded."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol


class PendingKeys(Protocol):
    """Keys, each of which can be taken or claimed only once."""

    def __bool__(self) -> bool:
        """Return whether keys may remain."""
        ...

    def take(self, keys_max: int) -> list[Any]:
        """Remove and return up to `keys_max` keys; return fewer only if no more remain."""
        ...

    def claim(self, keys: Collection[Any], or_all: bool = False) -> list[Any]:
        """Remove and return those of `keys` that remain, because they are about to change.

        Args:
            or_all: whether to return all remaining keys instead if there are no more of them than `keys`.
        """
        ...


class ListedKeys:
    """Pending keys that are all in memory."""

    __slots__ = ("_keys",)

    def __init__(self, keys: set[Any]) -> None:
        self._keys = keys

    def __bool__(self) -> bool:
        return bool(self._keys)

    def take(self, keys_max: int) -> list[Any]:
        """Remove and return up to `keys_max` keys."""
        keys = self._keys
        return self._all() if len(keys) <= keys_max else [keys.pop() for _ in range(keys_max)]

    def claim(self, keys: Collection[Any], or_all: bool = False) -> list[Any]:
        """Remove and return those of `keys` that remain; with `or_all`, possibly all remaining keys instead."""
        if or_all and len(self._keys) <= len(keys):
            return self._all()
        claimed = self._keys.intersection(keys)
        self._keys -= claimed
        return list(claimed)

    def _all(self) -> list[Any]:
        keys, self._keys = list(self._keys), set()
        return keys
