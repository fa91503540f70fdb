"""`KeyIndex`, which assigns a slot 0, 1, 2 … to each key and looks up the slots of a whole column at a time.

Integers are looked up in NumPy arrays, a batch at a time: directly if their range is dense, otherwise by probing an
open-addressing table.  Other keys use Arrow's `dictionary_encode` and a dict over the distinct values. Slots depend on
the order of arrival, but outputs do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as types

from causal.errors import invariant
from causal.records.vectors import Vectors
from operators.records.arrow_rows import values_of
from operators.records.keys import canonical_key

Slots: TypeAlias = "npt.NDArray[np.int64]"

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_BITS_MIN = 10
_LOAD_MAX = 2
"""The minimum number of places per key."""
_DENSE_MIN = 1 << 16
_SPAN_MAX = 4
"""The limits of a dense range: it may have this many places in total, or this many per key."""


def column_of(vectors: Vectors, name: str) -> pa.Array:
    """Return the column with this name.

    Raises:
        KeyError: the column does not exist; the message names the existing columns.
    """
    place = vectors.batch.schema.get_field_index(name)
    if place < 0:
        raise KeyError(f"column {name!r} does not exist; the columns are {', '.join(vectors.batch.schema.names)}")
    return vectors.batch.column(place)


def signed(column: pa.Array) -> Slots | None:
    """Return an integer column without nulls as signed 64-bit integers; return None for any other column."""
    if not types.is_integer(column.type) or types.is_uint64(column.type) or column.null_count:
        return None
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


class Dense:
    """The slots of a dense range of integers: one place per integer, which contains -1 if that integer is not a key."""

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self._places = np.full(high - low + 1, -1, np.int32)

    def find(self, keys: Slots, known: Slots) -> Slots:
        """Return the slot of each key, or -1 for a new key; all keys must be in the range."""
        return self._places.take(keys - self.low if self.low else keys)

    def insert(self, keys: Slots, slots: Slots) -> None:
        """Add new keys."""
        self._places[keys - self.low] = slots


class Hashed:
    """The slots of arbitrary integers: a key is at its home place, or later with no free place (-1) in between."""

    def __init__(self, keys_max: int) -> None:
        self._bits = max(_BITS_MIN, (keys_max * _LOAD_MAX - 1).bit_length())
        self._places = np.full(1 << self._bits, -1, np.int32)

    @property
    def keys_max(self) -> int:
        """The maximum number of keys that fit."""
        return len(self._places) // _LOAD_MAX

    def _homes(self, keys: Slots) -> Slots:
        return ((keys.view(np.uint64) * _SPREAD) >> np.uint64(64 - self._bits)).view(np.int64)

    def find(self, keys: Slots, known: Slots) -> Slots:
        """Return the slot of each key, or -1 for a new key; `known` contains the existing keys by slot."""
        places, mask = self._places, len(self._places) - 1
        at = self._homes(keys)
        slots = places.take(at)
        left = np.flatnonzero((slots >= 0) & (known.take(slots, mode="wrap") != keys))
        while left.size:
            at_left = at[left] = (at[left] + 1) & mask
            probed = slots[left] = places[at_left]
            left = left[(probed >= 0) & (known[probed] != keys[left])]
        return slots

    def insert(self, keys: Slots, slots: Slots) -> None:
        """Add new keys, which must be distinct."""
        places, mask = self._places, len(self._places) - 1
        at = self._homes(keys)
        while slots.size:
            free = places[at] < 0
            places[at[free]] = slots[free]  # if several keys have the same place, only one of them is stored there
            lost = places[at] != slots
            at, keys, slots = (at[lost] + 1) & mask, keys[lost], slots[lost]


class IntegerIndex:
    """Keys that are signed 64-bit integers.

    State: `_places` is a `Dense` until the range of the keys becomes much larger than their number, then a `Hashed`.
    """

    def __init__(self) -> None:
        self.count = 0
        self._keys = np.zeros(1 << _BITS_MIN, np.int64)
        self._places: Dense | Hashed = Dense(0, -1)

    def __len__(self) -> int:
        return self.count

    def slots_of(self, keys: Slots) -> Slots:
        """Return the slot of each key; a new key receives the next free slot."""
        if not len(keys):
            return np.zeros(0, np.int64)
        if isinstance(self._places, Dense):
            self._cover(int(keys.min()), int(keys.max()), len(keys))
        slots = self._places.find(keys, self._keys)
        if slots.min() < 0:
            missing = np.flatnonzero(slots < 0)
            fresh, first = np.unique(keys[missing], return_index=True)
            self._insert(fresh[np.argsort(first)])
            slots[missing] = self._places.find(keys[missing], self._keys)
        return slots

    def keys_at(self, slots: Slots) -> list[Any]:
        """Return the keys at these slots."""
        keys: list[Any] = self._keys[slots].tolist()
        return keys

    def _cover(self, low: int, high: int, coming: int) -> None:
        """Extend the dense range to these bounds, with spare places where it is extended, or change to a `Hashed`."""
        had = self._places
        invariant(isinstance(had, Dense), "only a dense range is widened")
        empty = had.high < had.low  # type: ignore[union-attr]
        if not empty and had.low <= low and high <= had.high:  # type: ignore[union-attr]
            return
        known = self._keys[: self.count]
        if self.count:
            lowest, highest = int(known.min()), int(known.max())
            low, high = min(low, lowest), max(high, highest)
        span = high - low + 1
        if span > max(_DENSE_MIN, _SPAN_MAX * (self.count + coming)):
            self._places = Hashed(self.count + coming)
        else:
            room = 0 if empty else span
            down = room if low < had.low else 0  # type: ignore[union-attr]
            self._places = Dense(max(low - down, -(1 << 63)), min(high + room - down, (1 << 63) - 1))
        self._places.insert(known, np.arange(self.count, dtype=np.int32))

    def _insert(self, fresh: Slots) -> None:
        """Add distinct new keys in the order of their slots."""
        first, self.count = self.count, self.count + len(fresh)
        if self.count > len(self._keys):
            grown = np.zeros(max(self.count, 2 * len(self._keys)), np.int64)
            grown[:first] = self._keys[:first]
            self._keys = grown
        self._keys[first : self.count] = fresh
        if isinstance(self._places, Hashed) and self.count > self._places.keys_max:
            self._places = Hashed(2 * self.count)
            first, fresh = 0, self._keys[: self.count]
        self._places.insert(fresh, np.arange(first, self.count, dtype=np.int32))


class ValueIndex:
    """Keys of any type that the key of a row can have."""

    def __init__(self) -> None:
        self._slots: dict[Any, int] = {}
        self._keys: list[Any] = []

    def __len__(self) -> int:
        return len(self._keys)

    def slots_of(self, column: pa.Array) -> Slots:
        """Return the slot of each value, or -1 for a value that is not equal to itself (NaN)."""
        encoded = column.dictionary_encode(null_encoding="encode")
        distinct = np.array([self.slot_of(key) for key in values_of(encoded.dictionary)], np.int64)
        slots: Slots = distinct[encoded.indices.to_numpy(zero_copy_only=False)]
        return slots

    def slot_of(self, key: Any) -> int:
        """Return the slot of one key, or -1 for NaN."""
        slot = self._slots.get(key)
        if slot is None:
            if key != key:
                return -1
            key = canonical_key(key)
            slot = self._slots[key] = len(self._keys)
            self._keys.append(key)
        return slot

    def keys_at(self, slots: Slots) -> list[Any]:
        """Return the keys at these slots."""
        keys = self._keys
        return [keys[slot] for slot in slots.tolist()]


class KeyIndex:
    """An `IntegerIndex` while all keys are integers, then a `ValueIndex` with the same slots."""

    def __init__(self) -> None:
        self._integers: IntegerIndex | None = IntegerIndex()
        self._values = ValueIndex()

    def __len__(self) -> int:
        return len(self._values if self._integers is None else self._integers)

    def slots_of(self, column: pa.Array) -> Slots:
        """Return the slot of each key, or -1 for NaN; a new key receives the next free slot."""
        if self._integers is not None:
            keys = signed(column)
            if keys is not None:
                return self._integers.slots_of(keys)
            self._generalise()
        return self._values.slots_of(column)

    def slots_of_keys(self, keys: Sequence[Any]) -> Slots:
        """Return the slots of keys that are Python values, as in a snapshot."""
        if self._integers is not None:
            if all(type(key) is int and -(1 << 63) <= key < 1 << 63 for key in keys):
                return self._integers.slots_of(np.array(keys, np.int64))
            self._generalise()
        return np.array([self._values.slot_of(key) for key in keys], np.int64)

    def keys_at(self, slots: Slots) -> list[Any]:
        """Return the keys at these slots, with the types that keys have in rows."""
        return (self._values if self._integers is None else self._integers).keys_at(slots)

    def _generalise(self) -> None:
        integers, self._integers = self._integers, None
        if integers is not None:
            for key in integers.keys_at(np.arange(len(integers))):
                self._values.slot_of(key)
