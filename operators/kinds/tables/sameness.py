"""Comparison of two row values: they are the same if they are equal and their types are equal at every level.

Python's `==` treats 0, 0.0 and False as equal, and NaN as different from itself.  A row that changes from 0 to False
has changed for its readers, and a row that remains NaN has not.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from math import copysign
from typing import Any

_EXACT = frozenset((int, str, bool, bytes, type(None)))
"""The types whose equal values are always the same."""


def same(first: Any, second: Any) -> bool:
    """Return whether two values are indistinguishable once written; the order of a dict does not matter."""
    kind = type(first)
    if kind is not type(second):
        return False
    if kind in _EXACT:
        return bool(first == second)
    if kind is dict:
        return len(first) == len(second) and all(
            key in second and same(value, second[key]) for key, value in first.items()
        ) and _same_keys(first, second)  # fmt: skip
    if kind is list or kind is tuple:
        return len(first) == len(second) and all(map(same, first, second))
    if kind is float:
        if first != first:
            return bool(second != second)
        return bool(first == second) and copysign(1.0, first) == copysign(1.0, second)
    if kind is Decimal:
        return bool(first.as_tuple() == second.as_tuple())
    if kind is datetime:
        return bool(first == second) and first.utcoffset() == second.utcoffset() and first.fold == second.fold
    return bool(first == second)


def _same_keys(first: dict[Any, Any], second: dict[Any, Any]) -> bool:
    """Return whether the keys of two dicts with equal keys have the same types."""
    if all(type(key) is str for key in first) and all(type(key) is str for key in second):
        return True
    kept = {key: key for key in second}
    return all(same(key, kept[key]) for key in first)
