"""One value per key that has a type, a time to live, or both."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from operators.state.keyed_tables import KeyedTable, TableJob, unpacked
from operators.state.schema import Codec, Read
from operators.state.ttl import Expiry


class ValueTable(KeyedTable):
    """Values by key; `put` and `drop` need no `touch`, a change of a value in place does."""

    __slots__ = ("codec", "read", "expiry")

    def __init__(self, name: str, operator: str, key_groups: int, codec: Codec, expiry: Expiry | None = None) -> None:
        super().__init__(name, operator, key_groups, {}, drop_empty=False)
        self.codec = codec
        self.read: Read = codec.reader(codec.shape, name)
        self.expiry = expiry

    def put(self, key: Any, value: Any) -> None:
        """Sets the value of a key; a `put` of its current value announces that the value will change in place."""
        self.touch((key,))
        self.values[key] = value
        if self.expiry is not None:
            self.expiry.wrote(key)

    def drop(self, key: Any) -> None:
        """Removes the value of a key."""
        if key in self.values:
            self.touch((key,))
            del self.values[key]
            if self.expiry is not None:
                self.expiry.removed(key)

    def forms(self) -> tuple[Read, Read]:
        """Returns the conversions of a value to what can be encoded, and back."""
        return self.codec.pack, self.codec.reader(self.codec.shape, self.name)

    def snapshot(self, full: bool) -> TableJob:
        """See `KeyedTable`."""
        if self._job is not None:
            self._job.step(self._job.left)
        pending = set(self.values) if full else self.dirty
        self.dirty = set()
        self._job = ValueJob(self, pending, full)
        return self._job

    def clear(self) -> None:
        super().clear()
        if self.expiry is not None:
            self.expiry.forget()

    def load(self, fragment: bytes) -> None:
        """Loads what a job encoded."""
        keys, entries, gone = unpacked(fragment)
        expiry, plain, read = self.expiry, self.codec.plain, self.read
        for key in gone:
            self.values.pop(key, None)
            if expiry is not None:
                expiry.unload(key)
        for key, (value, age) in zip(keys, entries, strict=True):
            self.values[key] = value if plain else read(value)
            if expiry is not None:
                expiry.load(key, age)
        self.shrink()


class ValueJob(TableJob):
    """Encodes pending values, each with its age."""

    __slots__ = ("_typed",)

    def __init__(self, table: ValueTable, pending: set[Any], full: bool) -> None:
        self._typed = table
        super().__init__(table, pending, full)

    def _finder(self, keys: Collection[Any]) -> Callable[[Any, Any], Any]:
        get, codec, expiry = self._table.lookup(keys).get, self._typed.codec, self._typed.expiry

        def find(key: Any, absent: Any) -> Any:
            value = get(key, absent)
            if value is absent:
                return absent
            return [codec.pack(value), None if expiry is None else expiry.age(key)]

        return find
