"""Which key group a key belongs to: the same in every process, on every machine, for ever.

Keys that are equal as dict keys (1, 1.0, True, Decimal(1)) are one key, so they must fall into one
group.  Different keys may share bytes here: that costs balance, never correctness.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from xxhash import xxh3_64_intdigest

from causal.values import encode

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Unroutable(ValueError):
    """A key that cannot name a state: unhashable, not equal to itself, or of a kind that no snapshot carries."""


def canonical(key: Any) -> bytes:
    """Bytes that are equal for keys that are equal; they do not depend on PYTHONHASHSEED.

    Raises:
        Unroutable: NaN, or a type that cannot be a key; the message names the mend.
    """
    if isinstance(key, str):
        return key.encode("utf-8", "surrogatepass")
    if isinstance(key, (int, float, Decimal)):
        if key != key:
            raise Unroutable("a key is NaN, which is not equal to itself; give key_by a value that is")
        # The hash of a number is a function of its value alone, whatever its type (and is never seeded).
        return b"%x" % hash(key)
    if key is None:
        return b""
    if isinstance(key, bytes):
        return key
    if isinstance(key, tuple):
        parts = [canonical(part) for part in key]
        return b"".join([b"%d:%b" % (len(part), part) for part in parts])
    if isinstance(key, datetime):
        told = key.replace(fold=0)
        return str((told if told.utcoffset() is not None else told.replace(tzinfo=UTC)) - _EPOCH).encode()
    raise Unroutable(
        f"a key is a {type(key).__qualname__}; give key_by a str, bytes, int, float, bool, None, datetime, Decimal "
        "or a tuple of these"
    )


def key_group(key: Any, key_groups: int) -> int:
    """The group of `key`, 0 to `key_groups - 1`.

    Raises:
        Unroutable: see `canonical`.
    """
    data = key.encode("utf-8", "surrogatepass") if type(key) is str else canonical(key)
    return int(xxh3_64_intdigest(data)) % key_groups


def key_groups_of(keys: Sequence[Any], key_groups: int) -> list[int]:
    """The group of each key; many keys of one common type at a time cost a third of asking for each.

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
    """The index, among `parallelism` tasks, of the task that owns `group`: neighbouring groups share a task."""
    return group * parallelism // key_groups


def ordered(keys: Iterable[Any]) -> list[Any]:
    """The keys in key order: by value where all are str, or all int, otherwise by how they are encoded.

    A function of what the keys are, never of the order in which they come (D10).
    """
    listed = list(keys)
    kinds = list(map(type, listed))
    if kinds.count(str) == len(kinds) or kinds.count(int) == len(kinds):
        return sorted(listed)
    return sorted(listed, key=encode)
