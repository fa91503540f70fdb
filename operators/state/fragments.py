"""The encoding of a fragment as MessagePack: keys, values and removed keys; tuples of equal length become columns.

Each tuple costs MessagePack a call into Python and an extension type. The keys of windows and joins are tuples of
tuples, and their accumulators are often tuples as well. Each of the three lists is `[0, items]`, or `[length, column,
…]` with columns of the same form. A fragment without columns contains the lists unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from causal.errors import CorruptData
from causal.records.values import NotCarried, decode, encode
from operators.records.keys import canonical_keys

Entry = tuple[list[Any], list[Any], list[Any]]
"""The content of a fragment: keys, the encoded values of these keys, and removed keys."""

_DEPTH_MAX = 3
"""The maximum number of tuple levels that become columns; a pair (key, (time, number)) has two levels."""
_LISTS = 3
_COLUMNS = 1
"""The fourth item of a fragment with columns."""


def packed(entry: Entry, carry: Callable[[Any], bytes] = encode) -> bytes:
    """Return the fragment that contains an entry.

    Args:
        carry: `encode`, or `encode_loosely` if the entry contains none of the types that only `encode` refuses.

    Raises:
        NotCarried: a key or value of the entry cannot be carried.
    """
    lists = [_spread(items, _DEPTH_MAX) for items in entry]
    if any(length for length, *_ in lists):
        with suppress(NotCarried):  # columns are nested more deeply; if that is too deep, encode the unchanged lists
            return carry([*lists, _COLUMNS])
    return carry(list(entry))


def unpacked(fragment: bytes) -> Entry:
    """Return the entry in a fragment, with canonical keys; older versions stored keys as they arrived.

    Raises:
        CorruptData: the bytes are not a fragment.
    """
    lists = decode(fragment)
    if len(lists) != _LISTS:
        *lists, layout = lists
        if layout != _COLUMNS:
            raise CorruptData("a snapshot has a fragment with an unknown layout; resume with the version that wrote it")
        lists = [_gathered(items) for items in lists]
    keys, values, gone = lists
    return canonical_keys(keys), values, gone


def divided(fragment: bytes, groups_of: Callable[[list[Any]], Sequence[int]]) -> dict[int, bytes]:
    """Return the share of each key group in a fragment.

    Args:
        groups_of: returns the key group of each key.
    """
    keys, values, gone = unpacked(fragment)
    entries: dict[int, Entry] = {}
    for group, key in zip(groups_of(gone), gone, strict=True):
        entries.setdefault(group, ([], [], []))[2].append(key)
    for group, key, value in zip(groups_of(keys), keys, values, strict=True):
        entry = entries.setdefault(group, ([], [], []))
        entry[0].append(key)
        entry[1].append(value)
    return {group: packed(entry) for group, entry in entries.items()}


def _spread(items: list[Any], depth: int) -> list[Any]:
    if not depth or not items or type(items[0]) is not tuple or not items[0]:
        return [0, items]
    if list(map(type, items)).count(tuple) != len(items):
        return [0, items]
    try:
        columns = list(map(list, zip(*items, strict=True)))
    except ValueError:  # the tuples have different lengths
        return [0, items]
    return [len(columns), *(_spread(column, depth - 1) for column in columns)]


def _gathered(written: list[Any]) -> list[Any]:
    length, *columns = written
    return list(zip(*map(_gathered, columns), strict=True)) if length else columns[0]
