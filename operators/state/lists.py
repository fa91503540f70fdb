"""Lists by key; however long the lists are, a checkpoint writes only the new items.

If items have only been appended to a list since the last snapshot, only those items are written. After any other
change, the whole list is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from causal.errors import CorruptData
from operators.state.fragments import unpacked
from operators.state.keyed_tables import ABSENT
from operators.state.merge_rules import LIST
from operators.state.schema import Read
from operators.state.values import TypedTable


class ListTable(TypedTable):
    """A table of nonempty lists by key.

    `append`, `extend` and `drop` need no `touch`; call `touch` before any other change. The items belong to the table
    and must not change unless `touch` has been called. For each changed list, `since` contains the number of items that
    earlier snapshots contain.
    """

    __slots__ = ()

    merges = LIST

    def append(self, key: Any, item: Any) -> None:
        """Append an item."""
        self._growing(key).append(item)

    def extend(self, key: Any, items: Iterable[Any]) -> None:
        """Append items in the given order."""
        more = list(items)
        if more:
            self._growing(key).extend(more)

    def _growing(self, key: Any) -> list[Any]:
        """Return the list of a key, to which the caller is about to append."""
        if self._job is not None:
            self._job.before((key,))
        items: list[Any] | None = self.values.get(key)
        if items is None:
            items = self.values[key] = []
        if key not in self.dirty:
            self.dirty.add(key)
            if items:
                self.since[key] = len(items)
        if self.expiry is not None:
            self.expiry.wrote(key)
        return items

    def drop(self, key: Any) -> None:
        """Remove the list of a key."""
        if key in self.values:
            super().touch((key,))
            del self.values[key]
            if self.expiry is not None:
                self.expiry.removed(key)

    def touch(self, keys: Collection[Any]) -> None:
        """Prepare lists for a change other than an append; the next snapshot writes the whole lists."""
        super().touch(keys)
        if self.expiry is not None:
            for key in keys:
                if key in self.values:
                    self.expiry.wrote(key)

    def forms(self) -> tuple[Read, Read]:
        """Return the functions that convert a list to its encodable form and back."""
        pack, unpack = self.codec.pack, self.codec.reader(self.codec.shape, self.name)
        return lambda items: list(map(pack, items)), lambda written: list(map(unpack, written))

    def packed(self, keys: Collection[Any], since: dict[Any, Any]) -> Iterable[Any]:
        """Yield (start, items from `start` on, age) for each key, or `ABSENT` for a key without a list."""
        for key, known in zip(keys, super().packed(keys, since), strict=True):
            if known is ABSENT:
                yield ABSENT
            else:
                start = since.get(key, 0)
                items = known[start:]
                age = None if self.expiry is None else self.expiry.age(key)
                yield start, items if self.codec.plain else list(map(self.codec.pack, items)), age

    def load(self, fragment: bytes) -> None:
        """Load a fragment that a job encoded, or one that was merged and also contains items that are loaded already.

        Raises:
            CorruptData: the items of a list start beyond the end of the items that were loaded before.
        """
        keys, entries, removed = unpacked(fragment)
        for key in removed:
            self.values.pop(key, None)
            if self.expiry is not None:
                self.expiry.unload(key)
        plain, read = self.codec.plain, self.read
        for key, (start, items, age) in zip(keys, entries, strict=True):
            if not plain:
                items = list(map(read, items))
            known = self.values.get(key, []) if start else []
            if start and not known and self.of_one_group:
                continue
            if len(known) < start:
                raise CorruptData(f"state {self.name!r}: a list continues at {start}, but it has {len(known)} items")
            self.values[key] = known
            known[start:] = items
            if self.expiry is not None:
                self.expiry.load(key, age)
        if self.slot_index is not None:
            self.slot_index.loaded(keys, removed)
        self.shrink()
