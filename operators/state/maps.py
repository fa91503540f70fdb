"""Maps by key; a checkpoint writes only the changed entries, in an order that a restore preserves.

For each key, an increment lists first the removed and new entries, then the changed ones: the entries that kept their
place, followed by new entries in the order in which they were put. A map that is loaded in that order iterates like the
original, also if it contains some of the new entries already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import repeat
from typing import Any

from causal.records.values import refuse_nan
from operators.state.fragments import unpacked
from operators.state.keyed_tables import ABSENT
from operators.state.merge_rules import MAP
from operators.state.schema import Read
from operators.state.values import TypedTable


class Change:
    """The entries of one map that were put, and those that were removed or new, since the last snapshot."""

    __slots__ = ("put", "gone")

    def __init__(self) -> None:
        self.put: dict[Any, None] = {}
        self.gone: dict[Any, None] = {}


class MapTable(TypedTable):
    """A table of nonempty maps by key, which only the table's methods may change.

    `values` may be read; a value in a map may be changed in place after a `put` of the same value. `since` contains the
    `Change` of each map; the places of `expiry` are (key, entry).
    """

    __slots__ = ()

    merges = MAP

    def put(self, key: Any, entry: Any, value: Any) -> None:
        """Set an entry; a `put` of its current value announces that the value will change in place."""
        entries = self.values.get(key)
        if entries is None:
            self.touch((key,))
            entries = self.values[key] = {}
        else:
            change = self._changing(key)
            if change is not None:
                if entry not in entries:
                    change.put.pop(entry, None)
                    change.gone[entry] = None
                change.put[entry] = None
        entries[entry] = value
        if self.expiry is not None:
            self.expiry.wrote((key, entry))

    def remove(self, key: Any, entry: Any) -> None:
        """Remove an existing entry."""
        change = self._changing(key)
        entries = self.values[key]
        del entries[entry]
        if self.expiry is not None:
            self.expiry.removed((key, entry))
        if not entries:
            del self.values[key]
            self.since.pop(key, None)
        elif change is not None:
            change.put.pop(entry, None)
            change.gone[entry] = None

    def drop(self, key: Any) -> None:
        """Remove all entries of a key."""
        if key in self.values:
            self.touch((key,))
            entries = self.values.pop(key)
            if self.expiry is not None:
                for entry in entries:
                    self.expiry.removed((key, entry))

    def _changing(self, key: Any) -> Change | None:
        """Return the `Change` that records the changes of a key's map, or None if the whole map will be written."""
        if self._job is not None:
            self._job.before((key,))
        if key not in self.dirty:
            self.dirty.add(key)
            self.since[key] = Change()
        return self.since.get(key)

    def forms(self) -> tuple[Read, Read]:
        """Return the functions that convert a map to its encodable form and back."""
        pack, unpack = self.codec.pack, self.codec.reader(self.codec.shape, self.name)

        def packed(entries: dict[Any, Any]) -> list[Any]:
            refuse_nan(entries)
            return [list(entries), list(map(pack, entries.values()))]

        return packed, lambda written: dict(zip(written[0], map(unpack, written[1]), strict=True))

    def packed(self, keys: Collection[Any], since: dict[Any, Any]) -> Iterable[Any]:
        """Yield [whether the whole map is written, entries, their values, removed entries, ages] for each key.

        Raises:
            NotCarried: an entry is NaN.
        """
        codec, expiry = self.codec, self.expiry
        for key, known in zip(keys, super().packed(keys, since), strict=True):
            if known is ABSENT:
                yield ABSENT
                continue
            change: Change | None = since.get(key)
            entries = list(known if change is None else change.put)
            refuse_nan(entries)
            values = [known[entry] for entry in entries]
            ages = [] if expiry is None else [expiry.age((key, entry)) for entry in entries]
            packed = values if codec.plain else list(map(codec.pack, values))
            yield [change is None, entries, packed, [] if change is None else list(change.gone), ages]

    def load(self, fragment: bytes) -> None:
        """Load a fragment that a job encoded."""
        keys, changes, gone = unpacked(fragment)
        expiry, plain, read = self.expiry, self.codec.plain, self.read
        for key in gone:
            self._forget(key, self.values.pop(key, ()))
        for key, (whole, entries, values, removed, ages) in zip(keys, changes, strict=True):
            if whole:
                self._forget(key, self.values.pop(key, ()))
            known = self.values.setdefault(key, {})
            for entry in removed:
                known.pop(entry, None)
            self._forget(key, removed)
            known.update(zip(entries, values if plain else map(read, values), strict=True))
            if expiry is not None:
                # Maps that were written without a time to live have no ages.
                for entry, age in zip(entries, ages or repeat(None, len(entries)), strict=True):
                    expiry.load((key, entry), age)
        self.shrink()

    def _forget(self, key: Any, entries: Iterable[Any]) -> None:
        if self.expiry is not None:
            for entry in entries:
                self.expiry.unload((key, entry))
