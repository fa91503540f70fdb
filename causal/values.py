"""MessagePack that gives back exactly what went in (D10), or refuses it.

tuple and list, int keys and str keys, datetime, Decimal and integers beyond 64 bits survive a round
trip unchanged.  Sets are refused (their order after a restore would depend on their history), and so
are subclasses and objects: nothing is ever unpickled.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import msgpack

from causal.errors import PeerViolation

_TUPLE, _DATETIME, _DECIMAL, _BIG_INT = 1, 2, 3, 4


class NotCarried(TypeError):
    """A value that MessagePack cannot carry unchanged; the message says which and what to use instead."""


def _extend(value: Any) -> msgpack.ExtType:
    kind = type(value)
    if kind is tuple:
        return msgpack.ExtType(_TUPLE, encode(list(value)))
    if kind is datetime:
        return msgpack.ExtType(_DATETIME, value.isoformat().encode())
    if kind is Decimal:
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    if kind is int:
        return msgpack.ExtType(_BIG_INT, str(value).encode())
    if kind in (set, frozenset):
        raise NotCarried(f"a {kind.__name__} has no order that survives a restore; use a dict with None values")
    raise NotCarried(
        f"{kind.__module__}.{kind.__qualname__} cannot be carried; use dict, list, tuple, str, bytes, int, float, bool, None, datetime or Decimal"
    )


def _restore(code: int, data: bytes) -> Any:
    if code == _TUPLE:
        return tuple(decode(data))
    if code == _DATETIME:
        return datetime.fromisoformat(data.decode())
    if code == _DECIMAL:
        return Decimal(data.decode())
    if code == _BIG_INT:
        return int(data.decode())
    raise PeerViolation(f"unknown extension type {code} in a MessagePack value")


def encode(value: Any) -> bytes:
    """The one encoding of `value`: equal values of equal types give equal bytes.

    Raises:
        NotCarried: a type that would not come back unchanged, or nesting that is too deep.
    """
    try:
        packed: bytes = msgpack.packb(
            value, default=_extend, strict_types=True, use_bin_type=True, unicode_errors="surrogatepass"
        )
        return packed
    except NotCarried:
        raise
    except (ValueError, OverflowError, TypeError, RecursionError) as problem:
        raise NotCarried(f"{type(value).__name__} cannot be carried: {problem}") from None


def decode(data: bytes | memoryview) -> Any:
    """The value that `encode` was given.

    Raises:
        PeerViolation: the bytes are not one complete value.
    """
    try:
        return msgpack.unpackb(
            data, ext_hook=_restore, strict_map_key=False, raw=False, unicode_errors="surrogatepass"
        )
    except PeerViolation:
        raise
    except Exception as problem:  # msgpack, datetime and Decimal each raise their own kinds
        raise PeerViolation(f"not a MessagePack value: {type(problem).__name__}: {problem}") from None
