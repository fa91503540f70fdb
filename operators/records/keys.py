"""Canonical keys and key groups, which are the same in every process and must never change.

Keys that are equal as dict keys (1, 1.0, True, Decimal(1)) count as one key: they have the same group and the same
spelling, which depends only on the value. Different keys may share a group; this affects load balance but never
correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from typing import Any

from xxhash import xxh3_64_intdigest

from causal.records.values import encode

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CANONICAL = frozenset((str, int, bytes, type(None)))
"""Types for which every value is a canonical key."""
_TUPLES = frozenset((tuple,))
_CANONICAL_OR_TUPLES = _CANONICAL | _TUPLES
_CONVERTED = (str, bytes, int, float, Decimal, datetime, tuple)
"""The key types; values of a subclass are converted to the type itself."""
_DIGITS_MAX = 4300
"""The maximum number of digits of a Decimal that becomes an int; Python does not convert longer ints to text."""


class Unroutable(ValueError):
    """Raised for a key that cannot identify state: not hashable, not equal to itself, or not encodable."""


def canonical_key(key: Any) -> Any:
    """Return the canonical key of `key`, which is equal to `key` and has a built-in type.

    A number becomes an int if it is whole, otherwise a float if an equal float exists, and otherwise a Decimal without
    trailing zeros. A datetime with a time zone is converted to UTC, and its `fold` is set to 0. The items of a tuple
    are replaced by their canonical keys.

    Raises:
        Unroutable: the value is NaN, or cannot be a key for another reason; the message names an alternative.
    """
    kind = type(key)
    if kind in _CANONICAL:
        return key
    of = _SPELLED.get(kind)
    return _of_subclass(key) if of is None else of(key)


def canonical_keys(keys: list[Any]) -> list[Any]:
    """Return the canonical keys; if the types show that all keys are canonical, return the same list without a copy.

    Raises:
        Unroutable: see `canonical_key`.
    """
    kinds = list(map(type, keys))
    if not kinds or (kinds[0] in _CANONICAL and kinds.count(kinds[0]) == len(kinds)):
        return keys
    level, below = keys, set(kinds)
    while below <= _CANONICAL_OR_TUPLES:
        if tuple not in below:
            return keys
        if below != _TUPLES:
            level = [part for part in level if type(part) is tuple]
        level = list(chain.from_iterable(level))
        below = set(map(type, level))
    return list(map(canonical_key, keys))


def _of_float(key: float) -> Any:
    if key != key:
        raise Unroutable(_NAN)
    return int(key) if key.is_integer() else key


def _of_decimal(key: Decimal) -> Any:
    if not key.is_finite():
        return _of_float(float("nan") if key.is_nan() else float(key))
    if not key:
        return 0
    sign, digits, exponent = key.as_tuple()
    place = len(digits)
    while not digits[place - 1]:
        place -= 1
    if place < len(digits):
        digits, exponent = digits[:place], int(exponent) + len(digits) - place
        key = Decimal((sign, digits, exponent))
    if int(exponent) >= 0:
        return int(key) if key.adjusted() < _DIGITS_MAX else key
    near = float(key)
    return near if near == key else key


def _of_datetime(key: datetime) -> datetime:
    if key.tzinfo is UTC and not key.fold:
        return key
    first = key.replace(fold=0)  # Python treats both occurrences of a repeated hour as equal
    if first.utcoffset() is None:
        return first.replace(tzinfo=None)
    try:
        return first.astimezone(UTC)
    except OverflowError:
        raise Unroutable("a key is a time that is outside the years 1 to 9999 in UTC; key by another value") from None


def _of_tuple(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return key if _CANONICAL.issuperset(map(type, key)) else tuple([canonical_key(part) for part in key])


_SPELLED: dict[type, Callable[[Any], Any]] = {
    bool: int,
    float: _of_float,
    Decimal: _of_decimal,
    datetime: _of_datetime,
    tuple: _of_tuple,
}
_NAN = "a key is NaN, which is not equal to itself; key by a value that is equal to itself"


def _of_subclass(key: Any) -> Any:
    """Convert an enumeration member, NumPy float, named tuple or the like to the built-in type that it extends."""
    for base in _CONVERTED:
        if isinstance(key, base):
            plain = _plain(base, key)
            if plain == key or plain != plain:
                return canonical_key(plain)
    raise Unroutable(
        f"a key is a {type(key).__qualname__}; key by a str, bytes, int, float, bool, None, datetime, Decimal "
        "or a tuple of these"
    )


def _plain(base: type, key: Any) -> Any:
    if base is str:
        return str.__str__(key)
    if base is datetime:
        fields = (key.year, key.month, key.day, key.hour, key.minute, key.second, key.microsecond, key.tzinfo)
        return datetime(*fields, fold=key.fold)
    return base(key)


def canonical(key: Any) -> bytes:
    """Return bytes that are equal for equal keys and do not depend on PYTHONHASHSEED.

    Raises:
        Unroutable: see `canonical_key`.
    """
    kind = type(key)
    if kind is str:
        return key.encode("utf-8", "surrogatepass")  # type: ignore[no-any-return]
    if kind is int:
        return b"%x" % hash(key)
    key = canonical_key(key)
    if isinstance(key, str):
        return key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return key
    if isinstance(key, (int, float, Decimal)):
        # The hash of a number depends only on its value, not on its type, and is never seeded.
        return b"%x" % hash(key)
    if key is None:
        return b""
    if isinstance(key, tuple):
        parts = [canonical(part) for part in key]
        return b"".join([b"%d:%b" % (len(part), part) for part in parts])
    return str((key if key.tzinfo is not None else key.replace(tzinfo=UTC)) - _EPOCH).encode()


def key_group(key: Any, key_groups: int) -> int:
    """Return the key group of `key`, from 0 to `key_groups - 1`.

    Raises:
        Unroutable: see `canonical`.
    """
    data = key.encode("utf-8", "surrogatepass") if type(key) is str else canonical(key)
    return int(xxh3_64_intdigest(data)) % key_groups


def key_groups_of(keys: Sequence[Any], key_groups: int) -> list[int]:
    """Return the key group of each key; for many keys of the same type, this is three times as fast as `key_group`.

    Raises:
        Unroutable: see `canonical`.
    """
    kinds = list(map(type, keys))
    if kinds.count(int) == len(kinds):
        return [xxh3_64_intdigest(b"%x" % hash(key)) % key_groups for key in keys]
    if kinds.count(str) == len(kinds):
        return [xxh3_64_intdigest(key.encode("utf-8", "surrogatepass")) % key_groups for key in keys]
    return [key_group(key, key_groups) for key in keys]


def task_of_group(group: int, parallelism: int, key_groups: int) -> int:
    """Return which of `parallelism` tasks owns `group`, as an index; each task owns a contiguous range of groups."""
    return group * parallelism // key_groups


def ordered(keys: Iterable[Any]) -> list[Any]:
    """Return canonical keys in key order: by value if all keys are str or all are int, otherwise by encoding.

    The order depends only on the keys, never on the order of arrival (D10).
    """
    listed = list(keys)
    kinds = list(map(type, listed))
    if kinds.count(str) == len(kinds) or kinds.count(int) == len(kinds):
        return sorted(listed)
    return sorted(listed, key=encode)
