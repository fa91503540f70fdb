"""One number per key, in an array by slot, and snapshots of the numbers touched since the last one, by key group.

A fragment has the same format as in `operators.state.keyed_tables`, `[keys, values, gone]`, so either can load what the
other wrote. The values, 8 bytes per key, are copied at the barrier, so the job encodes the state at the barrier.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from causal.errors import CorruptData
from causal.records.values import decode, encode
from operators.kinds.vectors.key_index import KeyIndex, Slots
from operators.records.keys import canonical, canonical_keys, key_group

Values: TypeAlias = "npt.NDArray[Any]"

_SLOTS_MIN = 1024


class NumberTable:
    """Numbers by key: 64-bit integers, or floats if the first number is a float.

    Attributes:
        values: the numbers by slot; the array may be longer than the number of slots.
    """

    def __init__(self, name: str, key_groups: int) -> None:
        self.name = name
        self.key_groups = key_groups
        self.index = KeyIndex()
        self.values: Values = np.zeros(_SLOTS_MIN, np.int64)
        self._touched = np.zeros(_SLOTS_MIN, np.bool_)
        self._groups = np.full(_SLOTS_MIN, -1, np.int32)
        self._loaded: list[tuple[list[Any], list[Any]]] = []

    def __len__(self) -> int:
        return len(self.index)

    def reserve(self) -> None:
        """Extend the arrays to cover all slots of the index."""
        size = len(self.index)
        if size > len(self.values):
            room = max(size, 2 * len(self.values))
            self.values = np.concatenate([self.values, np.zeros(room - len(self.values), self.values.dtype)])
            self._touched = np.concatenate([self._touched, np.zeros(room - len(self._touched), np.bool_)])
            self._groups = np.concatenate([self._groups, np.full(room - len(self._groups), -1, np.int32)])

    def put(self, slots: Slots, values: Values) -> None:
        """Set the values at slots, which must be distinct."""
        self.values[slots] = values
        self._touched[slots] = True

    def groups_of(self, slots: Slots) -> npt.NDArray[np.int32]:
        """Return the key group of each slot; it is computed only once per slot."""
        groups = self._groups[slots]
        fresh = np.flatnonzero(groups < 0)
        if fresh.size:
            keys = self.index.keys_at(slots[fresh])
            groups[fresh] = [key_group(key, self.key_groups) for key in keys]
            self._groups[slots[fresh]] = groups[fresh]
        return groups

    def snapshot(self, full: bool) -> NumberJob:
        """Freeze values at this moment: all of them, or those put since the last snapshot."""
        slots = np.arange(len(self.index)) if full else np.flatnonzero(self._touched)
        self._touched[:] = False
        return NumberJob(self, slots, self.values[slots])

    def clear(self) -> None:
        """Remove all keys."""
        self.index = KeyIndex()
        self.values = np.zeros(_SLOTS_MIN, np.int64)
        self._touched = np.zeros(_SLOTS_MIN, np.bool_)
        self._groups = np.full(_SLOTS_MIN, -1, np.int32)
        self._loaded = []

    def inspect(self, key: Any) -> Any:
        """Return the number for the key, or None if it has none."""
        keys = self.index.keys_at(np.arange(len(self.index)))
        return self.values[keys.index(key)].item() if key in keys else None

    def kept_keys(self) -> Iterable[Any]:
        """Return the keys that have a number."""
        return self.index.keys_at(np.arange(len(self.index)))

    def load(self, fragment: bytes) -> None:
        """Load a fragment that a job encoded; call `settle` before any other use."""
        keys, values, gone = decode(fragment)
        if gone or not all(type(v) is float or (type(v) is int and -(1 << 63) <= v < 1 << 63) for v in values):
            raise CorruptData(
                f"state {self.name!r} does not consist of one number per key; resume with the pipeline that wrote it"
            )
        self._loaded.append((canonical_keys(keys), values))

    def settle(self) -> None:
        """Assign slots to the loaded keys in key order, so that slots do not depend on the state's history."""
        if not self._loaded:
            return
        loaded = {key: value for keys, values in self._loaded for key, value in zip(keys, values, strict=True)}
        self._loaded = []
        whole = all(type(key) is int for key in loaded)
        keys = sorted(loaded) if whole else sorted(loaded, key=lambda key: (type(key).__name__, canonical(key)))
        slots = self.index.slots_of_keys(keys)
        if self.values.dtype == np.int64 and any(type(value) is float for value in loaded.values()):
            self.values = self.values.astype(np.float64)
        self.reserve()
        self.values[slots] = [loaded[key] for key in keys]


class NumberJob:
    """A job that encodes frozen values into fragments per key group."""

    def __init__(self, table: NumberTable, slots: Slots, values: Values) -> None:
        self.name = table.name
        self.fragments: dict[int, list[bytes]] = {}
        self._table = table
        self._slots = slots
        self._values = values
        self._done = 0

    def step(self, keys_max: int) -> int:
        """Encode up to `keys_max` more keys; return how many were encoded, which is fewer only when none remain."""
        part = slice(self._done, self._done + keys_max)
        slots, values = self._slots[part], self._values[part]
        self._done += len(slots)
        groups = self._table.groups_of(slots)
        order = np.argsort(groups, kind="stable")
        groups = groups[order]
        keys, numbers = self._table.index.keys_at(slots[order]), values[order].tolist()
        bounds = np.flatnonzero(np.diff(groups, prepend=-1, append=-1)).tolist()
        for start, stop in zip(bounds, bounds[1:]):
            fragment = encode([keys[start:stop], numbers[start:stop], []])
            self.fragments.setdefault(int(groups[start]), []).append(fragment)
        return len(slots)
