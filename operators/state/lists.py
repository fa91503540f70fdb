"""Lists by key of which a checkpoint writes only the new items, however long the lists are.

A table knows how much of each list earlier snapshots hold.  At a barrier nothing is copied: a list is only appended to,
so only its length has to be noted, with the next append or when the list is encoded.  After any other change a list is
written from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from causal.errors import CorruptData
from operators.state.keyed_tables import KeyedTable, TableJob, unpacked
from operators.state.schema import Codec, Read
from operators.state.ttl import Expiry

_PLAIN = Codec()

_Stretch = tuple[list[Any], int, int, Any]
"""(list, start and end of what is to be written, age of the list)"""


class ListTable(KeyedTable):
    """Lists by key, none of them empty.

    `append`, `extend` and `drop` need no `touch`; any other change does, before it.  The items belong to the table:
    they must not change except after `touch`.
    """

    __slots__ = ("written", "codec", "read", "expiry")

    def __init__(
        self,
        name: str,
        operator: str,
        key_groups: int,
        group_of: Callable[[Any], Any] | None = None,
        codec: Codec = _PLAIN,
        expiry: Expiry | None = None,
    ) -> None:
        """
        Args:
            codec: codec of the items.
        """
        super().__init__(name, operator, key_groups, {}, drop_empty=False, group_of=group_of)
        self.written: dict[Any, int] = {}
        self.codec = codec
        self.read: Read = codec.reader(codec.shape, name)
        self.expiry = expiry

    def append(self, key: Any, item: Any) -> None:
        """Appends an item."""
        self._grows(key)
        items = self.values.get(key)
        if items is None:
            self.values[key] = [item]
        else:
            items.append(item)

    def extend(self, key: Any, items: Iterable[Any]) -> None:
        """Appends items, in their order."""
        more = list(items)
        if more:
            self._grows(key)
            self.values.setdefault(key, []).extend(more)

    def _grows(self, key: Any) -> None:
        job = self._job
        if job is not None:
            job.before((key,))
        self.dirty.add(key)
        if self.expiry is not None:
            self.expiry.wrote(key)

    def drop(self, key: Any) -> None:
        """Removes the list of a key."""
        if key in self.values:
            job = self._job
            if job is not None:
                job.before((key,))
            self.dirty.add(key)
            del self.values[key]
            self.written.pop(key, None)
            if self.expiry is not None:
                self.expiry.removed(key)

    def touch(self, keys: Collection[Any]) -> None:
        """Prepares lists for a change other than an append: they are written from the beginning."""
        job = self._job
        if type(job) is ListJob:
            job.now(keys)
        self.dirty.update(keys)
        for key in keys:
            self.written.pop(key, None)
            if self.expiry is not None and key in self.values:
                self.expiry.wrote(key)

    def forms(self) -> tuple[Read, Read]:
        """Returns the conversions of a list to what can be encoded, and back."""
        pack, unpack = self.codec.pack, self.codec.reader(self.codec.shape, self.name)
        return lambda items: list(map(pack, items)), lambda written: list(map(unpack, written))

    def snapshot(self, full: bool) -> TableJob:
        """Freezes the lists now: whole, or what was appended since the last snapshot."""
        if self._job is not None:
            self._job.step(self._job.left)
        pending = set(self.values) if full else self.dirty
        self.dirty = set()
        self._job = ListJob(self, pending, full)
        return self._job

    def clear(self) -> None:
        super().clear()
        self.written.clear()
        if self.expiry is not None:
            self.expiry.forget()

    def load(self, fragment: bytes) -> None:
        """Loads what a job encoded.

        Raises:
            CorruptData: it does not start where what was loaded before ends.
        """
        keys, entries, removed = unpacked(fragment)
        for key in removed:
            self.values.pop(key, None)
            self.written.pop(key, None)
            if self.expiry is not None:
                self.expiry.unload(key)
        plain, read = self.codec.plain, self.read
        for key, (start, items, age) in zip(keys, entries, strict=True):
            if not plain:
                items = list(map(read, items))
            known = self.values.get(key, []) if start else []
            if len(known) != start:
                raise CorruptData(f"state {self.name!r}: a list continues at {start}, but {len(known)} items are there")
            self.values[key] = known
            known += items
            self.written[key] = len(known)
            if self.expiry is not None:
                self.expiry.load(key, age)
        self.shrink()


class ListJob(TableJob):
    """Encodes the items of each pending list that were there at the barrier and are in no earlier snapshot."""

    __slots__ = ("_lists", "_full", "_noted", "_taken")

    def __init__(self, table: ListTable, pending: set[Any], full: bool) -> None:
        self._lists = table
        self._full = full
        self._noted: dict[Any, _Stretch] = {}
        self._taken: dict[Any, _Stretch] = {}
        # An increment is by key group, too: the continuation of a list can only be loaded with that list, and a query
        # loads one key group.
        super().__init__(table, pending, divided=True)

    @property
    def left(self) -> int:
        return len(self.pending) + len(self._noted)

    def _note(self, key: Any) -> None:
        """Notes the length of a list that has not changed since the barrier."""
        table = self._lists
        items = table.values.get(key)
        age = table.expiry.age(key) if table.expiry is not None and items else None
        if items:
            self._noted[key] = items, 0 if self._full else table.written.get(key, 0), len(items), age
            table.written[key] = len(items)
        else:
            self._noted[key] = [], 0, 0, None

    def step(self, keys_max: int) -> int:
        keys = [self.pending.pop() for _ in range(min(keys_max, len(self.pending)))]
        if self._table.cold is not None:
            self._table.cold.touch(keys)
        for key in keys:
            self._note(key)
        taken = self._taken = dict([self._noted.popitem() for _ in range(min(keys_max, len(self._noted)))])
        self._encode(taken)
        self._table.shrink()
        if not self.left:
            self._table.done(self)
        return len(taken)

    def before(self, keys: Iterable[Any]) -> None:
        """Prepares lists for an append or a drop."""
        for key in keys:
            if key in self.pending:
                self.pending.remove(key)
                self._note(key)

    def now(self, keys: Iterable[Any]) -> None:
        """Encodes lists that are about to change otherwise and are not encoded yet."""
        self.before(keys)
        self._taken = {key: self._noted.pop(key) for key in keys if key in self._noted}
        self._encode(self._taken)

    def _finder(self, keys: Collection[Any]) -> Callable[[Any, Any], Any]:
        taken, codec = self._taken, self._lists.codec

        def find(key: Any, absent: Any) -> Any:
            known, start, end, age = taken[key]
            items = known[start:end]
            return [start, items if codec.plain else list(map(codec.pack, items)), age] if end else absent

        return find
