"""Copies of the records that operators yield, so that later changes of state do not affect the records.

Operators run batch by batch, and a batch is encoded at the end of its event. Without a copy, a record that contains a
list from `ctx.state` would show the changes that later records of the same batch made to that list. A buffer, dict or
list that is refilled for each record would cause the same problem.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from datetime import datetime
from decimal import Decimal
from gc import is_tracked
from typing import Any

from operators.records.nesting import room_for_nesting

SCALARS = frozenset((int, str, float, bool, bytes, type(None), datetime, Decimal))
"""The types whose values cannot change."""
_ALWAYS_FIT = frozenset((float, bool, type(None)))
_INT_END = 1 << 64

all_scalar = SCALARS.issuperset


def always_fits(value: Any) -> bool:
    """Return whether any record and any state can contain the value, because it is certainly not too large."""
    kind = type(value)
    return kind in _ALWAYS_FIT or (kind is int and -_INT_END < value < _INT_END)


def _copier(other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that copies dicts and lists at any depth, and calls `other` for all other non-scalar values."""

    def copier(value: Any) -> Any:
        kind = type(value)
        if kind in SCALARS:
            return value
        if kind is dict:
            items = value.copy()
            for key, inner in value.items():
                if type(inner) not in SCALARS:
                    items[key] = copier(inner)
            return items
        if kind is list:
            return value.copy() if all_scalar(map(type, value)) else [copier(inner) for inner in value]
        if kind is tuple:
            return value if all_scalar(map(type, value)) else tuple([copier(inner) for inner in value])
        return other(value)

    def copied(value: Any) -> Any:
        try:
            return copier(value)
        except RecursionError:
            with room_for_nesting():
                return copier(value)

    return copied


def _own_other(value: Any) -> Any:
    if type(value) in (bytearray, memoryview):
        return bytes(value)
    return copy(value) if _is_writable(value) else value


def is_buffer(value: Any) -> bool:
    """Return whether the value's own content can change in place without a change of an object that it contains."""
    return type(value) in (bytearray, memoryview) or _is_writable(value)


def _is_writable(value: Any) -> bool:
    """Return whether the value exposes writable memory, like `array.array`, a NumPy array or a memory map."""
    try:
        with memoryview(value) as view:
            return not view.readonly
    except (TypeError, ValueError, BufferError):
        return False


def _refuse_buffer(value: Any) -> Any:
    if is_buffer(value):
        raise TypeError(f"a {type(value).__name__} cannot be kept as state: its content can change; use bytes(…)")
    return value


copy_containers = _copier(_own_other)
"""Return `value` with every dict, list and buffer in it copied; all other objects are shared, even if they can change.

A bytearray or memoryview becomes bytes, as it does between tasks. TypeError is raised for a writable buffer that cannot
be copied, such as a memory map.
"""

own_state = _copier(_refuse_buffer)
"""Return the copy of a value that declared state stores; TypeError is raised if the value contains a buffer."""


def kept(value: Any) -> Any:
    """Return the same result as `copy_containers`, but faster, for records that operators emit one by one.

    A hashable value cannot change. A dict that the garbage collector does not track contains neither a dict nor a list,
    but it may contain a buffer, which is not hashable.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    try:
        if kind is tuple:
            hash(value)
            return value
        if kind is dict and not is_tracked(value):
            hash(tuple(value.values()))
            return value.copy()
    except (TypeError, ValueError):  # hashing a writable memoryview raises ValueError
        return copy_containers(value)
    return copy_containers(value)
