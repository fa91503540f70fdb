"""The order of keys, and the part of the ordered keys that a scan returns, without I/O.

Keys are ordered by kind (null, numbers, texts, bytes, times without a zone, times, tuples) and then by value; tuples
are ordered by their first item, then by the second, and so on. A scan returns the keys that a filter over all keys
would return, in this order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

UNBOUNDED: Any = object()
"""The bound of a range that has none; None is a key."""

Place = tuple[Any, ...]
"""A tuple that is ordered as its key."""

_NULL, _NUMBER, _TEXT, _BYTES, _LOCAL_TIME, _TIME, _TUPLE = range(7)
_RANKS: dict[type, int] = {str: _TEXT, bytes: _BYTES, type(None): _NULL}
_OF_ONE_KIND = frozenset((str, int, bytes))
"""Types whose values are ordered as keys are."""


def place_of(key: Any) -> Place:
    """Return the place of a canonical key in the order."""
    kind = type(key)
    if kind is tuple:
        return _TUPLE, tuple(map(place_of, key))
    if kind is datetime:
        return _LOCAL_TIME if key.tzinfo is None else _TIME, key
    if key is None:
        return (_NULL,)
    return _RANKS.get(kind, _NUMBER), key


def in_order(keys: Collection[Any]) -> list[Any]:
    """Return distinct canonical keys in order; keys that are largely ordered already are ordered in linear time."""
    kinds = set(map(type, keys))
    return sorted(keys) if len(kinds) < 2 and kinds <= _OF_ONE_KIND else sorted(keys, key=place_of)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys that a scan returns.

    Attributes:
        prefix: the beginning of keys that are texts; if it is not empty, all other keys are left out.
        first: the least key.
        before: the end of the range, which does not belong to it.
        after: the last key of the previous page; only later keys follow.
    """

    prefix: str = ""
    first: Any = UNBOUNDED
    before: Any = UNBOUNDED
    after: Any = UNBOUNDED

    def admits(self, key: Any) -> bool:
        """Return whether a key is in the range."""
        if self.prefix and not self._begins(key):
            return False
        place = place_of(key)
        return (
            (self.first is UNBOUNDED or place >= place_of(self.first))
            and (self.before is UNBOUNDED or place < place_of(self.before))
            and (self.after is UNBOUNDED or place > place_of(self.after))
        )

    def bounds(self, ordered: Sequence[Any]) -> tuple[int, int]:
        """Return the slice of the ordered keys that are in the range."""
        start, stop = 0, len(ordered)
        if self.prefix:
            start = bisect_left(ordered, (_TEXT, self.prefix), key=place_of)
            stop = bisect_left(ordered, True, start, key=lambda key: not self._begins(key))
        if self.first is not UNBOUNDED:
            start = max(start, bisect_left(ordered, place_of(self.first), key=place_of))
        if self.after is not UNBOUNDED:
            start = max(start, bisect_right(ordered, place_of(self.after), key=place_of))
        if self.before is not UNBOUNDED:
            stop = min(stop, bisect_left(ordered, place_of(self.before), key=place_of))
        return start, max(start, stop)

    def _begins(self, key: Any) -> bool:
        return type(key) is str and key.startswith(self.prefix)


class OrderedKeys:
    """The keys of one operator in order, at one checkpoint after the other.

    State: `keys` are those of the last `update`, in order.
    """

    def __init__(self) -> None:
        self.keys: Sequence[Any] = ()
        self._known: set[Any] = set()

    def update(self, known: set[Any]) -> None:
        """Replace the keys; if only few are new, ordering them takes linear time."""
        if known != self._known:
            kept = self.keys if self._known <= known else filter(known.__contains__, self.keys)
            self.keys = in_order([*kept, *known.difference(self._known)])
            self._known = known
