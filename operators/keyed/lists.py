"""Lists by key whose growth is what a checkpoint writes: an append costs an append, however long the list has grown.

A table knows how much of each list earlier snapshots hold.  At a barrier nothing is copied: a list is only ever
appended to, so its length then is all that must be remembered, and that is noted when the next append comes, or when
the list is encoded.  Whatever else is done to a list has it written from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from causal.errors import CorruptData
from operators.keyed.schema import Codec, Read
from operators.keyed.ttl import Expiry
from operators.state import Table, TableJob, unpacked

_PLAIN = Codec()

_Stretch = tuple[list[Any], int, int, Any]
"""A list, from where to where it is to be written, and its age."""


class ListTable(Table):
    """Lists by key, none of them empty.

    `append`, `extend` and `drop` by themselves, `touch` before any other change.  The items are the table's own: they
    must not change but after `touch`.
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
            codec: of the items.
        """
        super().__init__(name, operator, key_groups, {}, drop_empty=False, group_of=group_of)
        self.written: dict[Any, int] = {}
        self.codec = codec
        self.read: Read = codec.reader(codec.shape, name)
        self.expiry = expiry

    def append(self, key: Any, item: Any) -> None:
        """Put an item at the end."""
        self._grows(key)
        held = self.values.get(key)
        if held is None:
            self.values[key] = [item]
        else:
            held.append(item)

    def extend(self, key: Any, items: Iterable[Any]) -> None:
        """Put items at the end, in their order."""
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
        """Forget the key's list."""
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
        """These lists are about to change otherwise: they are written from the beginning."""
        job = self._job
        if type(job) is ListJob:
            job.now(keys)
        self.dirty.update(keys)
        for key in keys:
            self.written.pop(key, None)
            if self.expiry is not None and key in self.values:
                self.expiry.wrote(key)

    def forms(self) -> tuple[Read, Read]:
        """Between a list and what can be encoded: there, and back."""
        pack, unpack = self.codec.pack, self.codec.reader(self.codec.shape, self.name)
        return lambda held: list(map(pack, held)), lambda told: list(map(unpack, told))

    def snapshot(self, full: bool) -> TableJob:
        """Freeze the lists now: whole, or what was appended since the last snapshot."""
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
        """Take over what a job encoded.

        Raises:
            CorruptData: it does not go on where what was loaded before ends.
        """
        keys, told, gone = unpacked(fragment)
        for key in gone:
            self.values.pop(key, None)
            self.written.pop(key, None)
            if self.expiry is not None:
                self.expiry.unload(key)
        plain, read = self.codec.plain, self.read
        for key, (start, items, age) in zip(keys, told, strict=True):
            if not plain:
                items = list(map(read, items))
            held = self.values.get(key, []) if start else []
            if len(held) != start:
                raise CorruptData(f"state {self.name!r}: a list goes on at {start}, but {len(held)} items are there")
            self.values[key] = held
            held += items
            self.written[key] = len(held)
            if self.expiry is not None:
                self.expiry.load(key, age)
        self.shrink()


class ListJob(TableJob):
    """Encodes, of each pending list, what was there at the barrier and in no snapshot before it."""

    __slots__ = ("_lists", "_full", "_noted", "_taken")

    def __init__(self, table: ListTable, pending: set[Any], full: bool) -> None:
        self._lists = table
        self._full = full
        self._noted: dict[Any, _Stretch] = {}
        self._taken: dict[Any, _Stretch] = {}
        # By key group also where it is an increment: what goes on behind a list can only be loaded with that list, and
        # a query loads one key group.
        super().__init__(table, pending, divided=True)

    @property
    def left(self) -> int:
        return len(self.pending) + len(self._noted)

    def _note(self, key: Any) -> None:
        """Remember how long the list is: nothing has been done to it since the barrier."""
        table = self._lists
        held = table.values.get(key)
        age = table.expiry.age(key) if table.expiry is not None and held else None
        if held:
            self._noted[key] = held, 0 if self._full else table.written.get(key, 0), len(held), age
            table.written[key] = len(held)
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
        """Something is about to be appended to these lists, or they are dropped."""
        for key in keys:
            if key in self.pending:
                self.pending.remove(key)
                self._note(key)

    def now(self, keys: Iterable[Any]) -> None:
        """These lists are about to change otherwise: encode those of them that are not encoded yet."""
        self.before(keys)
        self._taken = {key: self._noted.pop(key) for key in keys if key in self._noted}
        self._encode(self._taken)

    def _finder(self, keys: Collection[Any]) -> Callable[[Any, Any], Any]:
        taken, codec = self._taken, self._lists.codec

        def find(key: Any, absent: Any) -> Any:
            held, start, end, age = taken[key]
            items = held[start:end]
            return [start, items if codec.plain else list(map(codec.pack, items)), age] if end else absent

        return find
