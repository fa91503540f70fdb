"""A slow `causal.records.values` by msgpack alone, with which the real one is compared."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgpack

from causal.errors import PeerViolation
from causal.records.values import NESTING_MAX, TUPLE_DEPTH_MAX, NotCarried, _refused

_TUPLE, _DATETIME, _DECIMAL, _BIG_INT = 1, 2, 3, 4
_MARKS = re.compile(rb"[\xc4-\xc9\xcb\xd4-\xd8]")


def _extended(value: Any, depth: int) -> msgpack.ExtType:
    kind = type(value)
    if kind is tuple:
        if depth == TUPLE_DEPTH_MAX:
            raise NotCarried(f"tuples nested more than {TUPLE_DEPTH_MAX} deep cannot be encoded; use lists")
        return msgpack.ExtType(_TUPLE, _packed(list(value), depth + 1))
    if kind is datetime:
        zone = value.tzinfo
        if zone is not None:
            offset = zone.utcoffset(None) if type(zone) is timezone else None
            if offset is None or zone.tzname(None) != timezone(offset).tzname(None):
                raise NotCarried(f"the time zone {zone} is not a fixed offset; use value.astimezone(timezone.utc)")
        return msgpack.ExtType(_DATETIME, value.isoformat().encode() + (b"~" if value.fold else b""))
    if kind in (Decimal, int):
        return msgpack.ExtType(_DECIMAL if kind is Decimal else _BIG_INT, str(value).encode())
    if kind in (set, frozenset):
        raise NotCarried(f"a {kind.__name__} does not keep its order when it is restored; use a dict with None values")
    raise _refused(kind)


def _packed(value: Any, depth: int) -> bytes:
    packed: bytes = msgpack.packb(
        value,
        default=lambda each: _extended(each, depth),
        strict_types=True,
        use_bin_type=True,
        unicode_errors="surrogatepass",
    )
    return packed


def _restored(code: int, data: bytes, depth: int) -> Any:
    if code == _TUPLE:
        if depth == TUPLE_DEPTH_MAX:
            raise PeerViolation(f"a MessagePack value has tuples nested more than {TUPLE_DEPTH_MAX} deep")
        items = _unpacked(data, depth + 1)
        if type(items) is not list:
            raise PeerViolation("a tuple in a MessagePack value is not a list of items")
        return tuple(items)
    if code == _DATETIME:
        value = _read(data.removesuffix(b"~").decode())
        return value.replace(fold=1) if data.endswith(b"~") else value
    if code == _DECIMAL:
        return Decimal(data.decode())
    if code == _BIG_INT:
        return int(data.decode())
    raise PeerViolation(f"a MessagePack value has the unknown extension type {code}")


def _read(text: str) -> datetime:
    """Return a datetime, whose offset Python does not read where it is less than a second."""
    value = datetime.fromisoformat(text)
    match = re.search(r"([+-])00:00:00\.(\d{6})$", text)
    if match is None:
        return value
    return value.replace(tzinfo=timezone(timedelta(microseconds=int(match[1] + match[2]))))


def _unpacked(data: bytes, depth: int) -> Any:
    return msgpack.unpackb(
        data,
        ext_hook=lambda code, inner: _restored(code, inner, depth),
        strict_map_key=False,
        raw=False,
        unicode_errors="surrogatepass",
    )


def _is_nan(key: Any) -> bool:
    if type(key) is tuple:
        return any(map(_is_nan, key))
    return type(key) in (float, Decimal) and key != key


def encode(value: Any) -> bytes:
    """Encode as `causal.records.values.encode` must."""
    packed = _encoded(value, 0)
    _look_into(value if _MARKS.search(packed) else None, strict=True)
    return packed


def _look_into(value: Any, strict: bool) -> None:
    """Refuse keys that are NaN; where it is strict, also what MessagePack takes for other types."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        if kind is list or kind is tuple:
            waiting.extend(each)
        elif kind is dict:
            if any(map(_is_nan, each)):
                raise NotCarried("a key is NaN, which is not equal to itself; use None or a string as the key")
            waiting.extend(each)
            waiting.extend(each.values())
        elif strict and kind in (bytearray, memoryview, msgpack.ExtType, msgpack.Timestamp):
            raise _refused(kind)


def encode_loosely(value: Any, tuples: int = 0) -> bytes:
    """Encode as `causal.records.values.encode_loosely` must."""
    packed = _encoded(value, tuples)
    _look_into(value if _MARKS.search(packed) else None, strict=False)
    return packed


def _encoded(value: Any, tuples: int) -> bytes:
    try:
        return _packed(value, tuples)
    except NotCarried:
        raise
    except (ValueError, OverflowError, TypeError, RecursionError) as problem:
        deep = isinstance(problem, RecursionError) or "recursion limit" in str(problem)
        reason = f"it is nested too deeply; the limit is {NESTING_MAX} lists and dicts" if deep else problem
        raise NotCarried(f"{type(value).__name__} cannot be encoded: {reason}") from None


def decode(data: bytes) -> Any:
    """Decode as `causal.records.values.decode` must."""
    try:
        return _unpacked(data, 0)
    except PeerViolation:
        raise
    except Exception as problem:
        raise PeerViolation(f"not a valid MessagePack value: {type(problem).__name__}: {problem}") from None
