"""Tables with one value per key; the values have a type, a time to live, or both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from operators.state.fragments import unpacked
from operators.state.keyed_tables import ABSENT, KeyedTable
from operators.state.schema import Codec, Read
from operators.state.ttl import Expiry

PLAIN = Codec()


class TypedTable(KeyedTable):
    """The base class of tables for declared state, whose values have a codec and may have an age.

    Attributes:
        codec: the codec of the values.
        read: the function that converts a written value, which may have an earlier shape.
        expiry: the ages of the places; None without a time to live.
    """

    __slots__ = ("codec", "read", "expiry")

    def __init__(
        self,
        name: str,
        operator: str,
        key_groups: int,
        codec: Codec = PLAIN,
        expiry: Expiry | None = None,
        group_of: Callable[[Any], Any] | None = None,
    ) -> None:
        """
        Args:
            codec: the codec of a value, of a list item, or of the value of a map entry.
        """
        super().__init__(name, operator, key_groups, group_of=group_of)
        self.codec = codec
        self.read: Read = codec.reader(codec.shape, name)
        self.expiry = expiry

    def clear(self) -> None:
        super().clear()
        if self.expiry is not None:
            self.expiry.forget()


class ValueTable(TypedTable):
    """A table of values by key; `put` and `drop` need no `touch`, but changing a value in place does."""

    __slots__ = ()

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; a `put` of its current value announces that the value will change in place."""
        self.touch((key,))
        self.values[key] = value
        if self.expiry is not None:
            self.expiry.wrote(key)

    def drop(self, key: Any) -> None:
        """Remove the value of a key."""
        if key in self.values:
            self.touch((key,))
            del self.values[key]
            if self.expiry is not None:
                self.expiry.removed(key)

    def forms(self) -> tuple[Read, Read]:
        """Return the functions that convert a value to its encodable form and back."""
        return self.codec.pack, self.codec.reader(self.codec.shape, self.name)

    def packed(self, keys: Collection[Any], since: dict[Any, Any]) -> Iterable[Any]:
        """Yield [value, age] for each key, or `ABSENT` for a key without a value."""
        for key, value in zip(keys, super().packed(keys, since), strict=True):
            if value is ABSENT:
                yield ABSENT
            else:
                yield [self.codec.pack(value), None if self.expiry is None else self.expiry.age(key)]

    def load(self, fragment: bytes) -> None:
        """Load a fragment that a job encoded."""
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
