"""Maps by key of which a checkpoint writes the entries that changed, in an order that a restore keeps.

An increment lists the removed entries of a key, and then the changed ones: new entries in the order in which they were
put, after those that kept their place.  Loaded in that order, a map iterates as the live one does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from operators.state.keyed_tables import KeyedTable, TableJob, unpacked
from operators.state.schema import Codec, Read
from operators.state.ttl import Expiry

_PLAIN = Codec()


class Change:
    """The changes of the map of one key since the last snapshot; `whole`: the whole map is written."""

    __slots__ = ("whole", "put", "gone")

    def __init__(self, whole: bool = False) -> None:
        self.whole = whole
        self.put: dict[Any, None] = {}
        self.gone: dict[Any, None] = {}


_WHOLE = Change(whole=True)


class MapTable(KeyedTable):
    """Maps by key, none of them empty; every change goes through the methods.

    `values` may be read; a value in it may change in place after a `put` of the same value.
    """

    __slots__ = ("codec", "read", "expiry", "_changes")

    def __init__(
        self, name: str, operator: str, key_groups: int, codec: Codec = _PLAIN, expiry: Expiry | None = None
    ) -> None:
        """
        Args:
            codec: codec of the values of entries.
            expiry: expiry with the places (key, entry).
        """
        super().__init__(name, operator, key_groups, {}, drop_empty=False)
        self.codec = codec
        self.read: Read = codec.reader(codec.shape, name)
        self.expiry = expiry
        self._changes: dict[Any, Change] = {}

    def put(self, key: Any, entry: Any, value: Any) -> None:
        """Sets an entry; a `put` of its current value announces that the value will change in place."""
        self._before(key)
        entries = self.values.get(key)
        if entries is None:
            entries = self.values[key] = {}
            change = self._changes[key] = Change(whole=True)
        else:
            change = self._change(key)
        if not change.whole:
            if entry not in entries:
                change.put.pop(entry, None)
            change.put[entry] = None
        entries[entry] = value
        if self.expiry is not None:
            self.expiry.wrote((key, entry))

    def remove(self, key: Any, entry: Any) -> None:
        """Removes an existing entry."""
        self._before(key)
        entries = self.values[key]
        del entries[entry]
        if self.expiry is not None:
            self.expiry.removed((key, entry))
        if not entries:
            del self.values[key]
            self._changes[key] = Change(whole=True)
            return
        change = self._change(key)
        if not change.whole:
            change.put.pop(entry, None)
            change.gone[entry] = None

    def drop(self, key: Any) -> None:
        """Removes all entries of a key."""
        if key in self.values:
            self._before(key)
            entries = self.values.pop(key)
            self._changes[key] = Change(whole=True)
            if self.expiry is not None:
                for entry in entries:
                    self.expiry.removed((key, entry))

    def _before(self, key: Any) -> None:
        job = self._job
        if job is not None:
            job.before((key,))

    def _change(self, key: Any) -> Change:
        change = self._changes.get(key)
        if change is None:
            change = self._changes[key] = Change()
        return change

    def touch(self, keys: Collection[Any]) -> None:
        """Prepares maps for any change: they are written whole."""
        for key in keys:
            self._before(key)
            self._changes[key] = Change(whole=True)

    def forms(self) -> tuple[Read, Read]:
        """Returns the conversions of a map to what can be encoded, and back."""
        pack, unpack = self.codec.pack, self.codec.reader(self.codec.shape, self.name)
        return (
            lambda entries: [list(entries), list(map(pack, entries.values()))],
            lambda written: dict(zip(written[0], map(unpack, written[1]), strict=True)),
        )

    def snapshot(self, full: bool) -> TableJob:
        """Freezes the maps now: whole, or the entries that changed since the last snapshot."""
        if self._job is not None:
            self._job.step(self._job.left)
        pending = dict.fromkeys(self.values, _WHOLE) if full else self._changes
        self._changes = {}
        self._job = MapJob(self, pending, full)
        return self._job

    def clear(self) -> None:
        super().clear()
        self._changes.clear()
        if self.expiry is not None:
            self.expiry.forget()

    def load(self, fragment: bytes) -> None:
        """Loads what a job encoded."""
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
                for entry, age in zip(entries, ages, strict=True):
                    expiry.load((key, entry), age)
        self.shrink()

    def _forget(self, key: Any, entries: Iterable[Any]) -> None:
        if self.expiry is not None:
            for entry in entries:
                self.expiry.unload((key, entry))


class MapJob(TableJob):
    """Encodes the changes of pending keys, or their maps."""

    __slots__ = ("_maps", "_left", "_taken")

    def __init__(self, table: MapTable, pending: dict[Any, Change], full: bool) -> None:
        self._maps = table
        self._left = pending
        self._taken: dict[Any, Change] = {}
        super().__init__(table, set(), full)

    @property
    def left(self) -> int:
        return len(self._left)

    def step(self, keys_max: int) -> int:
        taken = self._taken = dict([self._left.popitem() for _ in range(min(keys_max, len(self._left)))])
        self._encode(taken)
        self._table.shrink()
        if not self._left:
            self._table.done(self)
        return len(taken)

    def before(self, keys: Iterable[Any]) -> None:
        self._taken = {key: self._left.pop(key) for key in keys if key in self._left}
        if self._taken:
            self._encode(self._taken)

    def _finder(self, keys: Collection[Any]) -> Callable[[Any, Any], Any]:
        taken, get, codec, expiry = self._taken, self._table.lookup(keys).get, self._maps.codec, self._maps.expiry

        def find(key: Any, absent: Any) -> Any:
            known = get(key)
            if known is None:
                return absent
            change = taken[key]
            entries = list(known if change.whole else change.put)
            values = [known[entry] for entry in entries]
            ages = [] if expiry is None else [expiry.age((key, entry)) for entry in entries]
            packed = values if codec.plain else list(map(codec.pack, values))
            return [change.whole, entries, packed, list(change.gone), ages]

        return find
