"""MessagePack that returns exactly what was encoded (D10), or refuses it.

tuple and list, int keys and str keys, datetime, Decimal and integers beyond 64 bits survive a round
trip unchanged.  Sets are refused (their order after a restore would depend on their history), and so
are subclasses and objects, bytes that can be changed in place, and time zones that are more than an
offset: nothing is ever unpickled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import msgpack

from causal.errors import PeerViolation

_TUPLE, _DATETIME, _DECIMAL, _BIG_INT = 1, 2, 3, 4
_SECOND_PASS = b"~"
"""The suffix of a datetime with fold = 1, which ISO 8601 cannot express."""

NESTING_MAX = 1024
"""The deepest nesting of lists and dicts, which take C stack in MessagePack; each tuple starts another count."""
_TOO_DEEP = "recursion limit"
"""A part of MessagePack's error for deeper nesting."""
TUPLE_DEPTH_MAX = 32
"""The deepest nesting of tuples: each level is a call into MessagePack, which takes 40 KiB of the C stack."""

_MAY_HOLD_BYTES = re.compile(rb"[\xc4-\xc9\xd4-\xd8]").search
"""Finds the marks of bytes and extensions, and sometimes a number that looks like one."""


class NotCarried(TypeError):
    """A value that MessagePack cannot carry unchanged; the message names it and what to use instead."""


def _extend(value: Any, depth: int) -> msgpack.ExtType:
    kind = type(value)
    if kind is tuple:
        if depth == TUPLE_DEPTH_MAX:
            raise NotCarried(f"more than {TUPLE_DEPTH_MAX} tuples within one another cannot be carried; use lists")
        return msgpack.ExtType(_TUPLE, _pack(list(value), depth + 1))
    if kind is datetime:
        return msgpack.ExtType(_DATETIME, _datetime_bytes(value))
    if kind is Decimal:
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    if kind is int:
        return msgpack.ExtType(_BIG_INT, str(value).encode())
    if kind in (set, frozenset):
        raise NotCarried(f"a {kind.__name__} has no order that survives a restore; use a dict with None values")
    raise _refused(kind)


def _refused(kind: type) -> NotCarried:
    return NotCarried(
        f"{kind.__module__}.{kind.__qualname__} cannot be carried; "
        "use dict, list, tuple, str, bytes, int, float, bool, None, datetime or Decimal"
    )


def _datetime_bytes(value: datetime) -> bytes:
    zone = value.tzinfo
    if zone is not None:
        offset = zone.utcoffset(None) if type(zone) is timezone else None
        if offset is None or zone.tzname(None) != timezone(offset).tzname(None):
            raise NotCarried(f"the time zone {zone} is more than an offset; use value.astimezone(timezone.utc)")
    return value.isoformat().encode() + (_SECOND_PASS if value.fold else b"")


def _restore(code: int, data: bytes, depth: int) -> Any:
    if code == _TUPLE:
        if depth == TUPLE_DEPTH_MAX:
            raise PeerViolation(f"more than {TUPLE_DEPTH_MAX} tuples within one another in a MessagePack value")
        items = _unpack(data, depth + 1)
        if type(items) is not list:
            raise PeerViolation("a tuple in a MessagePack value is not a list of items")
        return tuple(items)
    if code == _DATETIME:
        again = data.endswith(_SECOND_PASS)
        value = datetime.fromisoformat(data.removesuffix(_SECOND_PASS).decode())
        return value.replace(fold=1) if again else value
    if code == _DECIMAL:
        return Decimal(data.decode())
    if code == _BIG_INT:
        return int(data.decode())
    raise PeerViolation(f"unknown extension type {code} in a MessagePack value")


def _at(depth: int) -> tuple[Callable[[Any], msgpack.ExtType], Callable[[int, bytes], Any]]:
    return lambda value: _extend(value, depth), lambda code, data: _restore(code, data, depth)


_HOOKS = [_at(depth) for depth in range(TUPLE_DEPTH_MAX + 1)]


def _pack(value: Any, depth: int) -> bytes:
    packed: bytes = msgpack.packb(
        value, default=_HOOKS[depth][0], strict_types=True, use_bin_type=True, unicode_errors="surrogatepass"
    )
    return packed


def _unpack(data: bytes | memoryview, depth: int) -> Any:
    return msgpack.unpackb(
        data, ext_hook=_HOOKS[depth][1], strict_map_key=False, raw=False, unicode_errors="surrogatepass"
    )


def encode(value: Any) -> bytes:
    """Encodes `value`: equal values of equal types give equal bytes.

    Raises:
        NotCarried: a type that would not come back unchanged, or nesting that is too deep.
    """
    packed = encode_loosely(value)
    if _MAY_HOLD_BYTES(packed):
        _refuse_unfaithful(value)
    return packed


def encode_loosely(value: Any, tuples: int = 0) -> bytes:
    """Encodes like `encode`, but accepts bytearray and memoryview, which come back as bytes: for bulk.

    Args:
        tuples: the number of tuples around what is encoded, which count.

    Raises:
        NotCarried: any other type that would not come back unchanged, or nesting that is too deep.
    """
    try:
        return _pack(value, tuples)
    except NotCarried:
        raise
    except (ValueError, OverflowError, TypeError, RecursionError) as problem:
        deep = isinstance(problem, RecursionError) or _TOO_DEEP in str(problem)
        reason = f"it is nested too deeply, {NESTING_MAX} lists and dicts are possible" if deep else problem
        raise NotCarried(f"{type(value).__name__} cannot be carried: {reason}") from None


_FAITHFUL = frozenset((int, str, float, bool, bytes, type(None), datetime, Decimal))
"""The types that hold no others and are taken for nothing else."""


def _refuse_unfaithful(value: Any) -> None:
    """Refuses types that MessagePack takes for others without calling the hook."""
    waiting = [value]
    while waiting:  # without recursion: the depth that is left depends on the caller
        each = waiting.pop()
        kind = type(each)
        if kind is list or kind is tuple:
            if not _FAITHFUL.issuperset(map(type, each)):
                waiting.extend(each)
        elif kind is dict:
            for items in (each, each.values()):
                if not _FAITHFUL.issuperset(map(type, items)):
                    waiting.extend(items)
        elif kind in (bytearray, memoryview, msgpack.ExtType, msgpack.Timestamp):
            raise _refused(kind)


def decode(data: bytes | memoryview) -> Any:
    """Returns the value that `encode` encoded.

    Raises:
        PeerViolation: the bytes are not one complete value.
    """
    try:
        return _unpack(data, 0)
    except PeerViolation:
        raise
    except Exception as problem:  # msgpack, datetime and Decimal each raise their own kinds
        raise PeerViolation(f"not a MessagePack value: {type(problem).__name__}: {problem}") from None
